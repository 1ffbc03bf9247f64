// Command notices writes the licenses of everything that is linked into the
// program, on every system for which it is built: Go modules, Go's standard
// library, and the libraries of the web console. It runs the go command and
// reads the module cache.
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is the committed, compressed file of notices, relative to the repository's root.
const File = "cmd/hostd/internal/licenses/notices.txt.gz"

//go:embed preact.txt
var preact string

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	text, err := notices(*root)
	if err == nil {
		err = write(filepath.Join(*root, File), text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// write writes a text compressed, as the program contains it.
func write(file, text string) error {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(z, text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// part is a module or a library, and the text of its licenses and notices.
type part struct {
	name, version string
	texts         []string
}

// notices returns the whole text. A license text that several parts share
// occurs only once.
func notices(root string) (string, error) {
	parts, err := modules(root)
	if err != nil {
		return "", err
	}
	parts = append(parts, part{"preact and @preact/signals (in the web console)", "", []string{preact}})
	var out strings.Builder
	out.WriteString("hostd contains the following software.\nA license that applies to several parts is printed once.\n")
	names := map[string][]string{}
	var order []string
	for _, p := range parts {
		for _, text := range p.texts {
			if names[text] == nil {
				order = append(order, text)
			}
			names[text] = append(names[text], strings.TrimSpace(p.name+" "+p.version))
		}
	}
	for _, text := range order {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 78), strings.Join(names[text], "\n"), strings.Repeat("-", 78), text)
	}
	return out.String(), nil
}

// modules returns the modules that any build of the program links, Go's
// standard library first.
func modules(root string) ([]part, error) {
	type module struct {
		Path, Version, Dir string
		Main               bool
	}
	found := map[string]module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/hostd")
		cmd.Dir, cmd.Stderr = root, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct{ Module *module }
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module != nil && !p.Module.Main {
				found[p.Module.Path] = *p.Module
			}
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	texts, err := licenses(strings.TrimSpace(string(goroot)))
	if err != nil {
		return nil, err
	}
	parts := []part{{"Go", "", texts}}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m := found[path]
		if texts, err = licenses(m.Dir); err != nil {
			return nil, err
		}
		parts = append(parts, part{m.Path, m.Version, texts})
	}
	return parts, nil
}

var named = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licenses reads the license files of a directory, which must have at least
// one.
func licenses(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !named.MatchString(e.Name()) || !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, clean(string(text)))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no license: add it by hand", dir)
	}
	return out, nil
}

// clean removes insignificant differences between copies of a text.
func clean(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}
