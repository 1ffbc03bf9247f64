package main

import (
	"fmt"
	"strings"

	"github.com/hostd/hostd/host/config"
)

const configurationHead = `# Configuration

<!-- written by "make reference" from host/config -->

Every key is a flag of ` + "`hostd serve`" + `, a line of its configuration file, and an environment variable.
The flag ` + "`--data-dir`" + ` is ` + "`data-dir:`" + ` in the file and ` + "`HOSTD_DATA_DIR`" + ` in the environment.
A flag wins over the environment, and the environment over the file.

| key | kind | default | meaning |
|---|---|---|---|
`

// configuration lists every key with its default.
func configuration(string) (string, error) {
	c := config.Default()
	var b strings.Builder
	b.WriteString(configurationHead)
	for _, f := range c.Fields() {
		value := f.String()
		if value == "" {
			value = "-"
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type(), value, cell(f.Usage))
	}
	return b.String(), nil
}

// cell is a text that is to stand in a table. Flags mark the name of their
// value with quotes that mean code here.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "`", "*").Replace(text)
}
