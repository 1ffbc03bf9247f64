package mutants

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hashesFile has, for each fault that tests have found, a hash of the fault's
// text and of the code in the files that it changes. As long as the hash is the
// same, the fault is planted again only in its turn. Comments are not part of
// the hash, because no test can depend on them.
const hashesFile = "tests/mutants/testdata/hashes.txt"

// hash returns the hash of a fault's text and of the code in the files that it
// changes.
func (f fault) hash(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s", len(f.text), f.text)
	var files []string
	for _, e := range f.edits {
		files = append(files, e.file)
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", file)
		writeCode(h, text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// writeCode writes the tokens of a Go file, one a line, without comments and
// white space. It includes comments that are compiler directives or build
// constraints.
func writeCode(w io.Writer, src []byte) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return
		case tok == token.COMMENT && !strings.HasPrefix(text, "//go:"):
		case tok == token.SEMICOLON: // the scanner inserts semicolons at line ends; text says whether this one was written
			fmt.Fprintln(w, tok)
		default:
			fmt.Fprintf(w, "%v %q\n", tok, text)
		}
	}
}

// readHashes returns the hashes of the faults by their names.
func readHashes(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, hashesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	hashes := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, hash, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no fault and its hash", hashesFile, line)
		}
		hashes[name] = hash
	}
	return hashes, nil
}

// writeHashes adds the hashes of found faults to the table. Other faults of the
// catalog keep their hashes.
func writeHashes(root string, all []fault, found map[string]string) error {
	hashes, err := readHashes(root)
	if err != nil {
		return err
	}
	maps.Copy(hashes, found)
	var b bytes.Buffer
	for _, f := range all {
		if hash, ok := hashes[f.name]; ok {
			fmt.Fprintf(&b, "%s %s\n", f.name, hash)
		}
	}
	return os.WriteFile(filepath.Join(root, hashesFile), b.Bytes(), 0o644)
}

// turns is the number of commits in which each fault is planted once even if
// nothing has changed.
const turns = 10

// due returns the reason why a fault is planted now: its text or the code that
// it changes has changed since tests last found it, or it is the fault's turn.
// It returns "" if the fault is not planted.
func due(i int, hash, before string, turn int) string {
	switch {
	case before == "":
		return "it is new"
	case before != hash:
		return "what it changes has changed"
	case i%turns == turn:
		return "it is its turn"
	}
	return ""
}

// turnOf returns the turn of a commit: the number of its ancestors or, if they
// cannot be counted, a number derived from its ID, or 0 if that is unknown too.
func turnOf(root string) int {
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	return turn(git("rev-parse", "--is-shallow-repository"), git("rev-list", "--count", "HEAD"), git("rev-parse", "HEAD"))
}

func turn(shallow, count, commit string) int {
	if n, err := strconv.Atoi(count); err == nil && shallow == "false" {
		return n % turns
	}
	n, err := strconv.ParseUint(commit[:min(len(commit), 8)], 16, 64)
	if err != nil {
		return 0
	}
	return int(n % turns)
}
