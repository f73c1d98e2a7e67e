{
  outputs = { self }:
    let
      mk = name: f: derivation ({ inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; } // f);
    in {
      packages.x86_64-linux = {
        none = mk "none" { };
        emptyList = mk "empty-list" { requiredSystemFeatures = [ ]; };
        emptyString = mk "empty-string" { requiredSystemFeatures = ""; };
        string = mk "string" { requiredSystemFeatures = "kvm big-parallel"; };
        list = mk "list" { requiredSystemFeatures = [ "kvm" "big-parallel" ]; };
        doubled = mk "doubled" { requiredSystemFeatures = [ "kvm" "kvm" "  " ]; };
        newline = mk "newline" { requiredSystemFeatures = "kvm\n\tbig-parallel"; };
        unknown = mk "unknown" { requiredSystemFeatures = [ "quantum" ]; };
        caseful = mk "caseful" { requiredSystemFeatures = [ "KVM" ]; };
      };
    };
}
