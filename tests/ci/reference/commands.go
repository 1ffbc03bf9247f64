package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hostd/hostd/host/config"
)

const commandsPage = "docs/reference/commands.md"

const commandsHead = `# Commands

<!-- written by "make reference" from "hostd commands", which also makes the manual pages of the packages -->

All commands of the program with their flags; ` + "`hostd COMMAND --help`" + ` prints the same.
[Command line](../operating/command-line.md) explains addresses, exit codes and output formats.

## Common flags

Most commands have these flags, and name those that they have under "Common".

`

const flagTable = `| flag | default | meaning |
|---|---|---|
`

// sharedBy is the number of commands from which on a flag that they share is
// listed only once.
const sharedBy = 12

// command is a command in the output of hostd commands.
type command struct {
	Use, Short, Long, Example string
	Flags                     []commandFlag
	Commands                  []command
}

type commandFlag struct{ Name, Shorthand, Value, Default, Usage string }

// describeCommands returns the output of hostd commands.
func describeCommands(root string) ([]byte, error) {
	cmd := exec.Command("go", "run", "./cmd/hostd", "commands")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOSTD_") }) // HOSTD_ variables would change the defaults in the output
	return cmd.Output()
}

// commands returns the page of all commands in the output of hostd commands.
func commands(described []byte) (string, error) {
	var tree command
	if err := json.Unmarshal(described, &tree); err != nil {
		return "", fmt.Errorf("read the commands of hostd: %w", err)
	}
	p := commandPage{uses: map[commandFlag]int{}, keys: map[string]bool{}}
	p.count(tree)
	c := config.Default()
	for _, f := range c.Fields() {
		p.keys[f.Name] = true
	}
	var shared []commandFlag
	for f, n := range p.uses {
		if n >= sharedBy {
			shared = append(shared, f)
		}
	}
	slices.SortFunc(shared, func(a, b commandFlag) int { return strings.Compare(a.Name+a.Default, b.Name+b.Default) })
	p.WriteString(commandsHead)
	p.table(shared)
	for _, sub := range tree.Commands {
		p.command("hostd", sub)
	}
	return p.String(), nil
}

// commandPage holds the text of the page so far, the number of commands with
// each flag, and the keys of a node's configuration, which are the flags of
// hostd serve.
type commandPage struct {
	strings.Builder
	uses map[commandFlag]int
	keys map[string]bool
}

func (p *commandPage) count(c command) {
	for _, f := range c.Flags {
		p.uses[f]++
	}
	for _, sub := range c.Commands {
		p.count(sub)
	}
}

func (p *commandPage) table(flags []commandFlag) {
	p.WriteString(flagTable)
	for _, f := range flags {
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := "-"
		if f.Default != "" && f.Default != "[]" && f.Value != "bool" {
			value = "`" + f.Default + "`"
		}
		fmt.Fprintf(p, "| %s | %s | %s |\n", name, value, cell(f.Usage))
	}
}

func (p *commandPage) command(parent string, c command) {
	name, _, _ := strings.Cut(c.Use, " ")
	path := parent + " " + name
	if len(c.Commands) > 0 {
		fmt.Fprintf(p, "\n## %s\n\n%s.\n", path, c.Short)
	} else {
		depth := "##"
		if parent != "hostd" {
			depth = "###"
		}
		fmt.Fprintf(p, "\n%s %s\n\n%s.\n\n    %s %s\n", depth, path, c.Short, parent, c.Use)
	}
	if text := paragraphs(c.Long); text != "" {
		p.WriteString("\n" + text + "\n")
	}
	if c.Example != "" {
		p.WriteString("\n" + indent(c.Example) + "\n")
	}
	var own []commandFlag
	var common []string
	keys := 0
	for _, f := range c.Flags {
		switch {
		case p.uses[f] >= sharedBy:
			common = append(common, "`--"+f.Name+"`")
		case path == "hostd serve" && p.keys[f.Name]:
			keys++
		default:
			own = append(own, f)
		}
	}
	if keys > 0 {
		fmt.Fprintf(p, "\nEach of the %d [keys of the configuration](configuration.md) is a flag too.\n", keys)
	}
	if len(own) > 0 {
		p.WriteString("\n")
		p.table(own)
	}
	if len(common) > 0 {
		fmt.Fprintf(p, "\nCommon: %s.\n", strings.Join(common, ", "))
	}
	for _, sub := range c.Commands {
		p.command(path, sub)
	}
}

var sentences = regexp.MustCompile(`([.!?]) +([A-Z'-])`)

// paragraphs converts a help text to Markdown, with a sentence on each line.
// Help texts indent examples by two spaces or a tab.
func paragraphs(text string) string {
	var out []string
	code, prose := false, ""
	end := func() {
		if prose != "" {
			prose = strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`).Replace(prose)
			out = append(out, sentences.ReplaceAllString(prose, "$1\n$2"))
			prose = ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if indented, ok := strings.CutPrefix(line, "\t"); ok {
			line = "  " + indented
		}
		isCode := strings.HasPrefix(line, "  ")
		if isCode != code && line != "" {
			end()
			if n := len(out); n > 0 && out[n-1] != "" {
				out = append(out, "")
			}
			code = isCode
		}
		switch {
		case isCode:
			out = append(out, "  "+line)
		case line == "":
			end()
			out = append(out, "")
		case prose != "":
			prose += " " + line
		default:
			prose = strings.TrimSpace(line)
		}
	}
	end()
	return strings.Join(out, "\n")
}

func indent(text string) string {
	var out []string
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		out = append(out, "    "+strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

// writeCommands writes the page of the commands.
func writeCommands(root string) error {
	described, err := describeCommands(root)
	if err != nil {
		return err
	}
	text, err := commands(described)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, commandsPage), []byte(text), 0o644)
}
