// Command site builds a static site from the Markdown pages of the repository:
// HTML pages with a menu and a search that needs no server, the pages as
// Markdown, and llms.txt, which lists them for language models. It fails if a
// link is broken. Two runs on the same files write the same bytes. It needs no
// network and starts no goroutine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("out", "../../site", "`folder` of the site; it is emptied first")
	version := flag.String("version", "", "release that the pages name; empty names none")
	flag.Parse()
	s, err := build(os.DirFS(*root), *version)
	if err == nil {
		err = s.write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "%d files in %s\n", len(s.files), *out)
}

// write writes the site to a directory after emptying it.
func (s *site) write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, content := range s.files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
