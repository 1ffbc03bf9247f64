package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A fault is a text in the catalog. Its first lines describe the faulty
// behavior. They are followed by what the fault breaks, the tests that must
// find it, and the replacements:
//
//	A node acknowledges what its disk may still lose.
//
//	holds: I2
//	seeds: 60
//	tests: ./journal/wal
//	tests: ./tests/e2e/disk -run=TestPowerLoss
//
//	@@ journal/wal/sync.go
//	<<<<
//		if err := f.Sync(); err != nil {
//	====
//		if err := error(nil); err != nil {
//	>>>>
//
// holds names what the fault breaks: invariants by their numbers in
// docs/internals/invariants.md, or subjects in areas. seeds, if present, is the
// number of seeds within which the simulator must find the fault. Each line of
// tests is a package and flags for its tests. Some test of one line must fail;
// the lines are tried in order. There may be several replacements, in one file
// or more. Each old text occurs exactly once in its file, as it is after the
// previous replacements.
type fault struct {
	name  string // name of its file without .txt
	text  string // content of its file
	says  string
	holds []string   // invariants or areas that the fault breaks
	tests [][]string // each is a package with a leading ./, and flags
	seeds int        // number of seeds; 0 if the simulator is not used
	edits []edit
}

// edit is one replacement.
type edit struct {
	file     string // relative to the root, with slashes
	old, new string
}

const (
	markFile = "@@ "
	markOld  = "<<<<\n"
	markNew  = "====\n"
	markEnd  = ">>>>\n"
)

// parse reads the text of a fault.
func parse(name, text string) (fault, error) {
	f := fault{name: name, text: text}
	head, rest, _ := strings.Cut(text, "\n"+markFile)
	var says []string
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "holds":
			f.holds = strings.Split(value, ", ")
		case "tests":
			f.tests = append(f.tests, strings.Fields(value))
		case "seeds":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return f, fmt.Errorf("seeds %q is not a number from 1", value)
			}
			f.seeds = n
		case "":
		default:
			says = append(says, line)
		}
	}
	f.says = strings.Join(says, " ")
	if f.says == "" || len(f.tests) == 0 && f.seeds == 0 {
		return f, errors.New("a fault says what it is and which tests find it")
	}
	if rest == "" {
		return f, errors.New("a fault replaces something")
	}
	for part := range strings.SplitSeq(rest, "\n"+markFile) {
		file, body, _ := strings.Cut(part, "\n")
		before, body, opened := strings.Cut(body, markOld)
		old, body, divided := strings.Cut(body, markNew)
		text, after, closed := strings.Cut(body, markEnd)
		if !opened || !divided || !closed || strings.TrimSpace(before+after) != "" || old == "" {
			return f, fmt.Errorf("%s: a replacement is <<<<, the old text, ====, the new text, >>>>", file)
		}
		f.edits = append(f.edits, edit{strings.TrimSpace(file), old, text})
	}
	return f, nil
}

// catalog returns the faults of the catalog under root, by name.
func catalog(root string) ([]fault, error) { return read(root, "tests/mutants/catalog/*.txt") }

// read returns the faults whose files under root match a pattern, by name.
func read(root, pattern string) ([]fault, error) {
	names, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []fault
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parse(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		all = append(all, f)
	}
	return all, nil
}

// plant adds the changed files to files, by path relative to root. If a file is
// already in the map because of another fault, plant changes that text.
func (f fault) plant(root string, files map[string]string) error {
	for _, e := range f.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return fmt.Errorf("%s: %s has the old text %d times:\n%s", f.name, e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return nil
}

// Overlay writes the files of the repository at root with some faults planted
// to dir, and returns the path of the file for go's -overlay flag. The faults
// are given by the names of their texts under tests, and are planted in order.
func Overlay(root, dir string, names ...string) (string, error) {
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, "tests", name))
		if err != nil {
			return "", err
		}
		f, err := parse(name, string(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if err := f.plant(root, files); err != nil {
			return "", err
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o644)
}
