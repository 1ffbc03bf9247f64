package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

// packages writes a Debian and an RPM package for each Linux architecture.
func (r *release) packages() error {
	work, err := os.MkdirTemp("", "hostd-packages-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, pair := range r.pairs {
		system, processor, _ := strings.Cut(pair, "/")
		if system != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(work, format, pair, processor); err != nil {
				return fmt.Errorf("%s for %s: %w", format, pair, err)
			}
		}
	}
	return nil
}

func (r *release) pack(work, format, pair, processor string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	contents, err := r.contents(work, r.programs[pair])
	if err != nil {
		return err
	}
	script := func(name string) string { return filepath.Join(r.root, "deploy/packages", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "hostd", Arch: processor, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1",
		Section: "database", Priority: "optional", Maintainer: "The hostd authors", Vendor: "hostd", Homepage: "https://github.com/hostd/hostd",
		License: "Apache-2.0", Description: "Runtime for durable entities written in WebAssembly\nA node, its command line and its manual pages.", MTime: r.date,
		Overridables: nfpm.Overridables{
			Contents:   contents,
			Scripts:    nfpm.Scripts{PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"), PostRemove: script("postremove.sh")},
			Recommends: []string{"ca-certificates"},
		},
	})
	info.RPM.BuildHost, info.RPM.Summary, info.RPM.Group = "hostd", "Runtime for durable entities written in WebAssembly", "Applications/Databases"
	if r.gpgKey != "" {
		info.Deb.Signature.KeyFile, info.RPM.Signature.KeyFile = r.gpgKey, r.gpgKey
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	name := packager.ConventionalFileName(info)
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(name, out.Bytes())
}

// contents returns the files of a package; generated files are written to work
// first.
func (r *release) contents(work, program string) (files.Contents, error) {
	var out files.Contents
	add := func(from, to, kind string, mode fs.FileMode, owner string) {
		out = append(out, &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: owner, Group: owner, Mode: mode, MTime: r.date}})
	}
	add(program, "/usr/bin/hostd", files.TypeFile, 0o755, "root")
	add(filepath.Join(r.root, "deploy/systemd/hostd.service"), "/usr/lib/systemd/system/hostd.service", files.TypeFile, 0o644, "root")
	add(filepath.Join(r.root, "deploy/systemd/hostd.sysusers"), "/usr/lib/sysusers.d/hostd.conf", files.TypeFile, 0o644, "root")
	add(filepath.Join(r.root, "deploy/packages/hostd.yaml"), "/etc/hostd/hostd.yaml", files.TypeConfigNoReplace, 0o644, "root")
	for _, f := range r.extra {
		from := filepath.Join(work, path.Base(f.name))
		if err := os.WriteFile(from, f.content, 0o644); err != nil {
			return nil, err
		}
		to := "/usr/share/doc/hostd/" + f.name
		switch dir, base := path.Split(f.name); {
		case dir == "man/":
			to = "/usr/share/man/man1/" + base
		case base == "hostd.bash":
			to = "/usr/share/bash-completion/completions/hostd"
		case base == "_hostd":
			to = "/usr/share/zsh/site-functions/_hostd"
		case base == "hostd.fish":
			to = "/usr/share/fish/vendor_completions.d/hostd.fish"
		}
		add(from, to, files.TypeFile, 0o644, "root")
	}
	return out, nil
}
