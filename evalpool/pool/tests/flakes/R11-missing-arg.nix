{ outputs = { self, tools }: { }; }
