package files_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/host/files"
)

func TestRegularFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("12345678"), 0o600),
		os.WriteFile(at("empty"), nil, 0o600),
		syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("file", at("link")),
		os.Symlink("pipe", at("link-to-pipe")),
		os.Symlink("none", at("link-to-none")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		path string
		most int
		text string
		says string // part of the error; empty if there is none
	}{
		{at("file"), 8, "12345678", ""},
		{at("link"), 9, "12345678", ""},
		{at("empty"), 0, "", ""},
		{at("file"), 7, "", "larger than 7 bytes"},
		{at("pipe"), 8, "", "is a pipe"},
		{at("link-to-pipe"), 8, "", "is a pipe"},
		{at("socket"), 8, "", "is a socket"},
		{"/dev/null", 8, "", "is a device"},
		{dir, 8, "", "is a directory"},
	} {
		text, about, err := files.Regular(tt.path, tt.most)
		if about == nil {
			t.Errorf("%s: nothing is known of it: %v", tt.path, err)
		}
		if tt.says == "" && (err != nil || string(text) != tt.text) || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.path) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s, at most %d: %q, %v", tt.path, tt.most, text, err)
		}
		if irregular := strings.Contains(tt.says, "is a "); errors.Is(err, files.ErrIrregular) != irregular {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
	for _, path := range []string{at("none"), at("link-to-none")} {
		if _, about, err := files.Regular(path, 8); !errors.Is(err, fs.ErrNotExist) || about != nil {
			t.Errorf("%s: %v, %v", path, about, err)
		}
	}
}
