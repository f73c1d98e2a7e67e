{ description = "no outputs attribute"; }
