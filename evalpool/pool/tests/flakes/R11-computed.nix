let x = 1; in { outputs = { self }: { }; }
