// Command reference generates the pages of docs/reference whose facts are in
// the code: the configuration, the limits, the metrics and the commands. Tests
// compare the committed pages with its output. It reads the sources, and runs
// hostd for the commands.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// generated maps each page, relative to the repository's root, to its
// generator.
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
	if err := writeCommands(*root); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", commandsPage, err)
		os.Exit(1)
	}
}
