// Command generate writes the monitoring configuration of hostd: Prometheus
// alerts with their tests, and Grafana dashboards. A test checks that the
// committed files are up to date. It calls no node and starts no process.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// generated maps the files, relative to deploy, to the functions that generate
// them.
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
