// Command generate writes what a monitoring of hostd begins with: the alerts of
// Prometheus with their tests, and the dashboards of Grafana. A test holds the
// committed files to what it writes. It reads no node and starts nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// generated are the files and who writes them, from the folder deploy.
var generated = map[string]func() ([]byte, error){
	"prometheus/rules.yaml":      rules,
	"prometheus/rules_test.yaml": rulesTest,
	"grafana/overview.json":      overview.json,
	"grafana/types.json":         types.json,
	"grafana/internals.json":     internals.json,
}

func main() {
	to := flag.String("to", "deploy", "the folder")
	flag.Parse()
	for name, write := range generated {
		text, err := write()
		if err == nil {
			path := filepath.Join(*to, name)
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, text, 0o644)
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
