// Command bundle builds host/console/dist from host/console/web. Run it in
// host/console/web, after npm ci:
//
//	go run ../bundle          write the bundle
//	go run ../bundle -check   fail if the committed bundle differs
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

const dist = "../dist"

func main() {
	check := flag.Bool("check", false, "fail if the committed bundle differs")
	flag.Parse()
	files, err := bundle()
	if err == nil {
		if *check {
			err = compare(files)
		} else {
			err = write(files)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// bundle returns the contents of dist by path.
func bundle() (map[string][]byte, error) {
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{"src/main.tsx", "src/style.css"},
		Bundle:      true, Format: api.FormatESModule, Target: api.ES2022,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
		Outdir: dist, EntryNames: "assets/[name]-[hash]",
		Define:   map[string]string{"process.env.NODE_ENV": `"production"`},
		LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return nil, fmt.Errorf("%d errors", len(result.Errors))
	}
	root, err := filepath.Abs(dist)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	names := map[string]string{} // by extension
	for _, out := range result.OutputFiles {
		name, err := filepath.Rel(root, out.Path)
		if err != nil {
			return nil, err
		}
		name = filepath.ToSlash(name)
		files[name] = out.Contents
		names[filepath.Ext(name)] = name
	}
	page, err := os.ReadFile("src/index.html")
	if err != nil {
		return nil, err
	}
	files["index.html"] = []byte(strings.NewReplacer("SCRIPT", names[".js"], "STYLE", names[".css"]).Replace(string(page)))
	return files, nil
}

func write(files map[string][]byte) error {
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dist, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func compare(files map[string][]byte) error {
	seen := 0
	err := fs.WalkDir(os.DirFS(dist), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dist, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if !bytes.Equal(content, files[name]) {
			return fmt.Errorf("%s is out of date: run make console", name)
		}
		seen++
		return nil
	})
	if err == nil && seen != len(files) {
		err = fmt.Errorf("dist has %d of %d files: run make console", seen, len(files))
	}
	return err
}
