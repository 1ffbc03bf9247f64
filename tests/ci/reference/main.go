// Command reference writes the pages of docs/reference that the code knows
// best: the configuration, the limits and the metrics. A test holds the
// committed pages to what it writes. It reads the sources and starts nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// generated are the pages and who writes them, from the repository's root.
var generated = map[string]func(root string) (string, error){
	"docs/reference/configuration.md": configuration,
	"docs/reference/limits.md":        limits,
	"docs/reference/metrics.md":       metrics,
}

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	for name, write := range generated {
		text, err := write(*root)
		if err == nil {
			path := filepath.Join(*root, name)
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(text), 0o644)
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
