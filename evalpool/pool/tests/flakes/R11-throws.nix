{ outputs = { self }: throw "outputs boom"; }
