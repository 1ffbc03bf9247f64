package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// documents returns the files that accompany the program: licenses, shell
// completions and man pages. The program that was built for this machine
// generates them.
func (r *release) documents(string) ([]file, error) {
	var out []file
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	out = append(out, file{name: "LICENSE", mode: 0o644, content: license})
	add := func(name string, args ...string) error {
		cmd := exec.Command(r.programs[runtime.GOOS+"/"+runtime.GOARCH], args...)
		cmd.Stderr = os.Stderr
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOSTD_") }) // HOSTD_ variables would change the defaults in the documents
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("hostd %s: %w", strings.Join(args, " "), err)
		}
		out = append(out, file{name: name, mode: 0o644, content: text})
		return nil
	}
	for _, f := range [][]string{
		{"THIRD_PARTY_NOTICES.txt", "licenses"},
		{"completions/hostd.bash", "completion", "bash"}, {"completions/_hostd", "completion", "zsh"}, {"completions/hostd.fish", "completion", "fish"},
		{"commands.json", "commands"},
	} {
		if err := add(f[0], f[1:]...); err != nil {
			return nil, err
		}
	}
	var tree command
	last := len(out) - 1
	if err := json.Unmarshal(out[last].content, &tree); err != nil {
		return nil, fmt.Errorf("read the commands of hostd: %w", err)
	}
	pages, err := r.manPages(tree)
	return append(out[:last], pages...), err
}

// command is a command in the output of hostd commands.
type command struct {
	Use, Short, Long, Example string
	Flags                     []struct{ Name, Shorthand, Value, Default, Usage string }
	Commands                  []command
}

// cobra rebuilds the cobra command, for cobra's generator of man pages.
func (c command) cobra() *cobra.Command {
	out := &cobra.Command{Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Run: func(*cobra.Command, []string) {}, DisableAutoGenTag: true}
	for _, f := range c.Flags {
		if f.Value == "bool" {
			out.Flags().BoolP(f.Name, f.Shorthand, f.Default == "true", f.Usage)
		} else {
			out.Flags().StringP(f.Name, f.Shorthand, f.Default, f.Usage)
		}
	}
	for _, sub := range c.Commands {
		out.AddCommand(sub.cobra())
	}
	return out
}

func (r *release) manPages(root command) ([]file, error) {
	var out []file
	var write func(c *cobra.Command) error
	write = func(c *cobra.Command) error {
		var page bytes.Buffer
		header := &doc.GenManHeader{Section: "1", Date: &r.date, Source: "hostd " + r.version, Manual: "hostd"}
		if err := doc.GenMan(c, header, &page); err != nil {
			return err
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		out = append(out, file{name: "man/" + name, mode: 0o644, content: page.Bytes()})
		for _, sub := range c.Commands() {
			if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
				continue
			}
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return out, write(root.cobra())
}
