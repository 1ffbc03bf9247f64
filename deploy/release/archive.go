package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// file is a file in an artifact.
type file struct {
	name    string // path with slashes
	mode    fs.FileMode
	content []byte
	owner   int // user and group id in tar files
}

// archives writes a tar.gz for each pair of system and architecture, or a zip
// for Windows.
func (r *release) archives() error {
	for _, pair := range r.pairs {
		program, err := os.ReadFile(r.programs[pair])
		if err != nil {
			return err
		}
		system, processor, _ := strings.Cut(pair, "/")
		name := fmt.Sprintf("hostd_%s_%s_%s", r.version, system, processor)
		as, suffix, pack := "hostd", ".tar.gz", tarGz
		if system == "windows" {
			as, suffix, pack = "hostd.exe", ".zip", zipFiles
		}
		files := []file{{name: name + "/" + as, mode: 0o755, content: program}}
		for _, f := range r.extra {
			f.name = name + "/" + f.name
			files = append(files, f)
		}
		content, err := pack(files, r.date)
		if err != nil {
			return err
		}
		if err := r.write(name+suffix, content); err != nil {
			return err
		}
	}
	return nil
}

// tarGz packs files, with their owners and a fixed time.
func tarGz(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)), ModTime: at, Uid: f.owner, Gid: f.owner, Format: tar.FormatPAX}
		if f.mode.IsDir() {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func zipFiles(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}
