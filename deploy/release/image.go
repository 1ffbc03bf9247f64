package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageUser is the user id of the node in the image. It owns the data
// directory.
const imageUser = 65532

// image writes an OCI image layout to a tar file, with an image for each Linux
// architecture. The images contain only the program.
func (r *release) image() error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, pair := range r.pairs {
		system, processor, _ := strings.Cut(pair, "/")
		if system != "linux" {
			continue
		}
		found = true
		image, err := r.imageOf(pair, processor)
		if err != nil {
			return fmt.Errorf("image for %s: %w", pair, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: processor}, Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version},
		}})
	}
	if !found {
		return nil
	}
	dir, err := os.MkdirTemp("", "hostd-image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	content, err := packLayout(dir, r)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("hostd_%s_image.oci.tar.gz", r.version), content)
}

func packLayout(dir string, r *release) ([]byte, error) {
	var all []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all = append(all, file{name: filepath.ToSlash(name), mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarGz(all, r.date)
}

func (r *release) imageOf(pair, processor string) (v1.Image, error) {
	program, err := os.ReadFile(r.programs[pair])
	if err != nil {
		return nil, err
	}
	files := []file{
		{name: "usr/bin/hostd", mode: 0o755, content: program},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "hostd:x:%d:%d:hostd:/var/lib/hostd:/\n", imageUser, imageUser)},
		{name: "tmp/", mode: fs.ModeDir | 0o700, owner: imageUser},
		{name: "var/lib/hostd/", mode: fs.ModeDir | 0o700, owner: imageUser},
	}
	for _, f := range r.extra {
		if strings.HasSuffix(f.name, "LICENSE") || strings.HasSuffix(f.name, "NOTICES.txt") {
			f.name = "usr/share/doc/hostd/" + f.name
			files = append(files, f)
		}
	}
	packed, err := tarGz(files, r.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "deploy/release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", processor, v1.Time{Time: r.date}
	labels := map[string]string{
		"title": "hostd", "version": r.version, "revision": r.commit, "created": r.date.Format("2006-01-02T15:04:05Z07:00"),
		"source": "https://github.com/hostd/hostd", "licenses": "Apache-2.0", "description": "Runtime for durable entities written in WebAssembly",
	}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", imageUser, imageUser), WorkingDir: "/var/lib/hostd", Volumes: map[string]struct{}{"/var/lib/hostd": {}},
		Entrypoint: []string{"/usr/bin/hostd"}, Cmd: []string{"serve"}, Env: []string{"PATH=/usr/bin", "HOSTD_DATA_DIR=/var/lib/hostd"},
		ExposedPorts: map[string]struct{}{"7070/tcp": {}, "7071/tcp": {}}, StopSignal: "SIGTERM", Labels: map[string]string{},
	}
	for key, value := range labels {
		config.Config.Labels["org.opencontainers.image."+key] = value
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, errors.New("no image")
	}
	return image, nil
}
