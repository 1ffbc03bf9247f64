package project

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	sources "github.com/hostd/hostd"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/guest-sdk/assemblyscript"
	"github.com/hostd/hostd/guest-sdk/c"
	"github.com/hostd/hostd/guest-sdk/rust"
	"github.com/hostd/hostd/guest-sdk/typescript"
	"github.com/hostd/hostd/host"
)

// templates are the initial files of projects, in a directory for each language
// and one for all. The directory LANG-TEMPLATE has the files of a template that
// differ from the language's. Their names end in .txt, and PROJECT in them stands for the
// project's name.
//
//go:embed templates
var templates embed.FS

// sdkDir is the directory of the SDK's sources in a project.
const sdkDir = "hostd-sdk"

// goRelease matches the line of go.mod with the required release of Go.
var goRelease = regexp.MustCompile(`(?m)^go (\S+)$`)

// entityTemplate is the template of each language.
const entityTemplate = "entity"

// roots returns the directories of a template, of which later ones replace files
// of earlier ones.
func roots(lang, template string) ([]string, error) {
	all := []string{path.Join("templates", "any"), path.Join("templates", lang)}
	if template == entityTemplate {
		return all, nil
	}
	own := path.Join("templates", lang+"-"+template)
	if _, err := fs.Stat(templates, own); err != nil || template == "" {
		return nil, cli.Usagef("--template: %q is no template for %s: use %s", template, lang, strings.Join(templateNames(lang), " or "))
	}
	return append(all, own), nil
}

// templateNames returns the templates of a language.
func templateNames(lang string) []string {
	names := []string{entityTemplate}
	entries, err := templates.ReadDir("templates")
	if err != nil {
		panic("embedded templates: " + err.Error()) // the directory is part of the program
	}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), lang+"-"); ok {
			names = append(names, name)
		}
	}
	return names
}

// contents returns the files of a new project, by path.
func contents(lang, template, name string) (map[string][]byte, error) {
	roots, err := roots(lang, template)
	if err != nil {
		return nil, err
	}
	mod, err := sources.Sources.ReadFile("go.mod")
	if err != nil {
		return nil, err
	}
	release := goRelease.FindSubmatch(mod)
	if release == nil {
		return nil, errors.New("this program was built without its Go version")
	}
	replace := strings.NewReplacer("PROJECT", name, "GOVERSION", string(release[1]), "VERSION", host.Version())
	files := map[string][]byte{}
	for _, root := range roots {
		err := fs.WalkDir(templates, root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := templates.ReadFile(file)
			to := strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ".txt")
			if to == "gitignore" {
				to = ".gitignore"
			}
			files[to] = []byte(replace.Replace(string(text)))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sdk, err := sdk(lang, string(release[1]))
	if err != nil {
		return nil, err
	}
	for file, text := range sdk {
		files[path.Join(sdkDir, file)] = text
	}
	return files, nil
}

// sdk returns the sources of a language's SDK, without tests.
func sdk(lang, release string) (map[string][]byte, error) {
	switch lang {
	case "go":
		files := map[string][]byte{"go.mod": fmt.Appendf(nil, "module github.com/hostd/hostd\n\ngo %s\n", release)}
		return files, take(files, sources.Sources)
	case "rust":
		files := map[string][]byte{}
		return files, take(files, rust.Sources)
	case "c":
		files := map[string][]byte{}
		return files, take(files, c.Sources)
	case "as":
		files := map[string][]byte{}
		return files, take(files, assemblyscript.Sources)
	case "ts":
		files := map[string][]byte{}
		return files, take(files, typescript.Sources)
	}
	return nil, fmt.Errorf("this program includes no SDK for %s", lang)
}

// take adds the files of an SDK that files does not contain yet.
func take(files map[string][]byte, from fs.FS) error {
	return fs.WalkDir(from, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(file, "_test.go") || files[file] != nil {
			return err
		}
		files[file], err = fs.ReadFile(from, file)
		return err
	})
}
