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
A flag overrides the environment, and the environment overrides the file.
`

const configurationTable = `
## %s

| key | kind | default | meaning |
|---|---|---|---|
`

// configuration returns a table of every key with its default, by subject.
func configuration(string) (string, error) {
	c := config.Default()
	var b strings.Builder
	b.WriteString(configurationHead)
	for _, s := range c.Sections() {
		fmt.Fprintf(&b, configurationTable, s.Title)
		for _, f := range s.Fields {
			value := f.String()
			if value == "" {
				value = "-"
			} else {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type(), value, cell(f.Usage))
		}
	}
	return b.String(), nil
}

// cell escapes a text for a table cell. Usage texts mark the name of a flag's
// value with backquotes, which mean code in Markdown, so cell emphasizes it instead.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "`", "*").Replace(text)
}
