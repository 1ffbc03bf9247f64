// Command cross type-checks the program and its clients for every platform for
// which they are built, or for the given platforms:
//
//	cross [-build] [-vet] [SYSTEM/PROCESSOR...]
//
// With an empty cache, compiling needs minutes of processor time for each
// platform. Nearly all portability errors are type errors, such as a function
// or a constant that does not exist on one system. cross therefore reads the
// sources once and checks the types for all platforms in seconds. With -build
// and -vet it also runs go build and go vet for each platform. It runs the go
// command and starts no goroutine.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pairs are the platforms of a release.
var pairs = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// checked are the packages that must compile everywhere, including everything
// that they import.
var checked = []string{"./cmd/hostd", "./api/..."}

func main() {
	build := flag.Bool("build", false, "run go build for each pair")
	vet := flag.Bool("vet", false, "run go vet for each pair")
	flag.Parse()
	chosen := flag.Args()
	if len(chosen) == 0 {
		chosen = pairs
	}
	c := checker{fset: token.NewFileSet(), parsed: map[string]*ast.File{}}
	failed := false
	for _, pair := range chosen {
		start := time.Now()
		err := c.run(pair, *build, *vet)
		fmt.Printf("%s: %s, %.1f s\n", pair, outcome(err), time.Since(start).Seconds())
		failed = failed || err != nil
	}
	if failed {
		os.Exit(1)
	}
}

func outcome(err error) string {
	if err != nil {
		return "FAILED\n" + err.Error()
	}
	return "ok"
}

func (c *checker) run(pair string, build, vet bool) error {
	system, processor, ok := strings.Cut(pair, "/")
	if !ok {
		return fmt.Errorf("%s: want a system and a processor, such as darwin/arm64", pair)
	}
	env := append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	if err := c.check(env, processor, checked...); err != nil {
		return err
	}
	if build {
		if err := goCommand(env, "build", "-o", os.DevNull, "./cmd/hostd"); err != nil {
			return err
		}
	}
	if vet {
		return goCommand(env, "vet", "./cmd/hostd")
	}
	return nil
}

func goCommand(env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Standard        bool
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// checker caches parsed files, because most of them are the same on all
// platforms.
type checker struct {
	fset   *token.FileSet
	parsed map[string]*ast.File
}

// check type-checks packages and everything that they import. In packages of
// other modules it checks only the declarations.
func (c *checker) check(env []string, processor string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard,Module"}, packages...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	done := imported{"unsafe": types.Unsafe}
	var errs []error
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the list of packages: %w", err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		files, err := c.parse(p)
		if err != nil {
			return err
		}
		own := p.Module != nil && p.Module.Main
		conf := types.Config{
			Importer: renamed{done, p.ImportMap}, IgnoreFuncBodies: !own, Sizes: types.SizesFor("gc", processor),
			Error: func(err error) { errs = append(errs, err) },
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			conf.GoVersion = "go" + p.Module.GoVersion
		}
		done[p.ImportPath], _ = conf.Check(p.ImportPath, c.fset, files, nil) // conf.Error collects all errors
	}
	return errors.Join(errs[:min(len(errs), 20)]...)
}

func (c *checker) parse(p listed) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f := c.parsed[path]
		if f == nil {
			var err error
			if f, err = parser.ParseFile(c.fset, path, nil, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			c.parsed[path] = f
		}
		files = append(files, f)
	}
	return files, nil
}

// imported holds the packages that have been checked, by import path.
type imported map[string]*types.Package

// renamed resolves the imports of one package. Its import paths may differ from
// the real paths, because the standard library vendors packages.
type renamed struct {
	done  imported
	paths map[string]string
}

func (r renamed) Import(path string) (*types.Package, error) {
	if to, ok := r.paths[path]; ok {
		path = to
	}
	if p := r.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not among the packages that go list named", path)
}
