package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// builder checks whether packages still compile with a fault. It type-checks
// their sources against the export data that the go command has compiled for
// their imports, so that nothing is linked and nothing is compiled twice. Only
// one goroutine may use it.
type builder struct {
	root     string
	set      *token.FileSet
	imports  types.Importer
	packages map[string]*listed // packages by directory, relative to the root
	parsed   map[string]*ast.File
	sound    map[string]bool // whether the tests of each directory compile without a fault
}

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, TestGoFiles    []string
	TestImports             []string
	Module                  *struct{ GoVersion string }
}

// list returns the output of go list for packages. With export, it includes
// everything that they import, compiled.
func list(root string, export bool, packages ...string) ([]listed, error) {
	args := []string{"list", "-json=ImportPath,Dir,Export,GoFiles,TestGoFiles,TestImports,Module"}
	if export {
		args = append(args, "-export", "-deps")
	}
	cmd := exec.Command("go", append(append(args, "--"), packages...)...)
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, errs.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		switch err := d.Decode(&l); err {
		case nil:
			all = append(all, l)
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
	}
}

// newBuilder returns a builder for faults in the Go code at root.
func newBuilder(root string, faults []fault) (*builder, error) {
	folders := map[string]bool{}
	for _, f := range faults {
		for _, e := range f.edits {
			if strings.HasSuffix(e.file, ".go") {
				folders["./"+path.Dir(e.file)] = true
			}
		}
	}
	of, err := list(root, false, slices.Sorted(maps.Keys(folders))...)
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, set: token.NewFileSet(), packages: map[string]*listed{}, parsed: map[string]*ast.File{}, sound: map[string]bool{}}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for i := range of {
		folder, err := filepath.Rel(abs, of[i].Dir)
		if err != nil {
			return nil, err
		}
		b.packages[filepath.ToSlash(folder)] = &of[i]
		needed[of[i].ImportPath] = true
		for _, imported := range of[i].TestImports {
			needed[imported] = true
		}
	}
	delete(needed, "C")
	compiled, err := list(root, true, slices.Sorted(maps.Keys(needed))...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, l := range compiled {
		exports[l.ImportPath] = l.Export
	}
	b.imports = importer.ForCompiler(b.set, "gc", func(name string) (io.ReadCloser, error) {
		if exports[name] == "" {
			return nil, fmt.Errorf("%s is not compiled", name)
		}
		return os.Open(exports[name])
	})
	return b, nil
}

// check returns the type errors of a fault's packages. It ignores code in other
// languages and for other systems.
func (b *builder) check(f fault) error {
	files := map[string]string{}
	if err := f.plant(b.root, files); err != nil {
		return err
	}
	folders := map[string]bool{}
	for file := range files {
		if strings.HasSuffix(file, ".go") {
			folders[path.Dir(file)] = true
		}
	}
	var errs []error
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		l := b.packages[folder]
		if l == nil {
			return fmt.Errorf("%s has no package", folder)
		}
		sound, known := b.sound[folder]
		if !known {
			// If tests import a package that imports the tested package, the types of
			// the tested package exist twice. Such tests are not checked.
			sound = b.types(folder, l, append(slices.Clone(l.GoFiles), l.TestGoFiles...), nil) == nil
			b.sound[folder] = sound
		}
		names := l.GoFiles
		if sound {
			names = append(slices.Clone(l.GoFiles), l.TestGoFiles...)
		}
		if err := b.types(folder, l, names, files); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// types type-checks a package with some of its files replaced.
func (b *builder) types(folder string, l *listed, names []string, planted map[string]string) error {
	var files []*ast.File
	for _, name := range names {
		file, err := b.parse(path.Join(folder, name), planted)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var errs []error
	conf := types.Config{Importer: b.imports, Sizes: types.SizesFor("gc", runtime.GOARCH), Error: func(err error) { errs = append(errs, err) }}
	if l.Module != nil && l.Module.GoVersion != "" {
		conf.GoVersion = "go" + l.Module.GoVersion
	}
	_, _ = conf.Check(l.ImportPath, b.set, files, nil)
	return errors.Join(errs...)
}

func (b *builder) parse(file string, planted map[string]string) (*ast.File, error) {
	if text, ok := planted[file]; ok {
		return parser.ParseFile(b.set, file, text, parser.SkipObjectResolution)
	}
	if parsed := b.parsed[file]; parsed != nil {
		return parsed, nil
	}
	parsed, err := parser.ParseFile(b.set, filepath.Join(b.root, file), nil, parser.SkipObjectResolution)
	b.parsed[file] = parsed
	return parsed, err
}
