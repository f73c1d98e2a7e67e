{ outputs = 3; }
