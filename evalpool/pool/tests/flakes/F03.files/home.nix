builtins.readFile ~/.profile
