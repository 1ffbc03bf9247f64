package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const sources = "https://github.com/hostd/hostd"

// npm writes the npm packages: the client, compiled to JavaScript with types,
// and the guest SDK, which hostd build bundles as TypeScript. npm ci installs
// the compiler that api/ts pins.
func (r *release) npm() error {
	work, err := os.MkdirTemp("", "hostd-npm-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	client, err := r.read("api/ts", "package.json", "package-lock.json", "tsconfig.json", "README.md", "src")
	if err != nil {
		return err
	}
	if err := writeAll(work, client); err != nil {
		return err
	}
	if err := runTool(work, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
		return err
	}
	if err := runTool(work, filepath.Join(work, "node_modules/.bin/tsc")); err != nil {
		return err
	}
	client = slices.DeleteFunc(client, func(f file) bool { return f.name == "package-lock.json" || f.name == "tsconfig.json" })
	compiled, err := readTree(work, "dist")
	if err != nil {
		return err
	}
	if err := r.packNPM("hostd-client", "api/ts", append(client, compiled...)); err != nil {
		return err
	}
	guest, err := r.read("guest-sdk/typescript", "package.json", "README.md", "src")
	if err != nil {
		return err
	}
	return r.packNPM("hostd-guest", "guest-sdk/typescript", guest)
}

// packNPM writes a package of the files of dir, in the form of npm pack.
func (r *release) packNPM(name, dir string, files []file) error {
	files, err := r.complete(dir, files)
	if err != nil {
		return err
	}
	for i, f := range files {
		if f.name == "package.json" {
			if files[i].content, err = r.npmManifest(dir, f.content); err != nil {
				return fmt.Errorf("%s/package.json: %w", dir, err)
			}
		}
		files[i].name = "package/" + f.name
	}
	content, err := tarGz(files, r.date)
	if err != nil {
		return err
	}
	return r.write(name+"-"+r.version+".tgz", content)
}

// npmManifest returns a package.json with the version of the release and
// without the members that only a checkout needs.
func (r *release) npmManifest(dir string, text []byte) ([]byte, error) {
	m := map[string]any{}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	for _, only := range []string{"private", "scripts", "devDependencies"} {
		delete(m, only)
	}
	m["version"], m["license"], m["homepage"] = r.version, "Apache-2.0", sources
	m["repository"] = map[string]string{"type": "git", "url": "git+" + sources + ".git", "directory": dir}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(m)
	return out.Bytes(), err
}

var (
	crateVersion = regexp.MustCompile(`(?m)^version = ".*"$`)
	cratePrivate = regexp.MustCompile(`(?m)^publish = false\n`)
)

// crate writes the package of the Rust SDK. It runs cargo package, which needs
// no network and compiles the package, so that the crate is known to need
// nothing from the checkout.
func (r *release) crate() error {
	work, err := os.MkdirTemp("", "hostd-crate-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	const dir = "guest-sdk/rust"
	files, err := r.read(dir, "Cargo.toml", "README.md", "src")
	if err != nil {
		return err
	}
	if files, err = r.complete(dir, files); err != nil {
		return err
	}
	for i, f := range files {
		if f.name != "Cargo.toml" {
			continue
		}
		if len(crateVersion.FindAll(f.content, 2)) != 1 {
			return fmt.Errorf("%s/Cargo.toml: want one line with the version", dir)
		}
		files[i].content = cratePrivate.ReplaceAll(crateVersion.ReplaceAll(f.content, []byte(`version = "`+r.version+`"`)), nil)
	}
	if err := writeAll(work, files); err != nil {
		return err
	}
	if err := runTool(work, "cargo", "package", "--offline", "--quiet", "--allow-dirty", "--target-dir", filepath.Join(work, "target")); err != nil {
		return err
	}
	name := "hostd-" + r.version + ".crate"
	packed, err := os.ReadFile(filepath.Join(work, "target/package", name))
	if err != nil {
		return err
	}
	if files, err = untar(packed); err != nil {
		return err
	}
	// cargo sets its own times on the files that it generates.
	if packed, err = tarGz(files, r.date); err != nil {
		return err
	}
	return r.write(name, packed)
}

// complete adds the license, and makes the links in README.md absolute, because
// most of them point outside of the package.
func (r *release) complete(dir string, files []file) ([]file, error) {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if f.name == "README.md" {
			files[i].content = absoluteLinks(f.content, dir, "v"+r.version)
		}
	}
	files = append(files, file{name: "LICENSE", mode: 0o644, content: license})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

var link = regexp.MustCompile(`\]\(([^)\s:#]+)(#[^)\s]*)?\)`)

// absoluteLinks replaces relative links of a page in dir by links to the
// sources at a tag.
func absoluteLinks(page []byte, dir, tag string) []byte {
	return link.ReplaceAllFunc(page, func(found []byte) []byte {
		m := link.FindSubmatch(found)
		return fmt.Appendf(nil, "](%s/blob/%s/%s%s)", sources, tag, path.Join(dir, string(m[1])), m[2])
	})
}

// read returns files and trees of a directory of the repository.
func (r *release) read(dir string, names ...string) ([]file, error) {
	var out []file
	for _, name := range names {
		files, err := readTree(filepath.Join(r.root, dir), name)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

// readTree returns the files at name, with names relative to root.
func readTree(root, name string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(filepath.Join(root, name), func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, at)
		out = append(out, file{name: filepath.ToSlash(rel), mode: 0o644, content: content})
		return err
	})
	return out, err
}

func writeAll(dir string, files []file) error {
	for _, f := range files {
		at := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, f.content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// untar reads the files of a tar.gz.
func untar(packed []byte) ([]file, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var out []file
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		out = append(out, file{name: h.Name, mode: 0o644, content: content})
	}
}

// runTool runs a program in a directory. Its output is only shown if it fails.
func runTool(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{filepath.Base(name)}, args...), " "), err, out)
	}
	return nil
}
