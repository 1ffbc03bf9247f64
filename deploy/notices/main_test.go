package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A commit that adds a module to the program must add its license too.
func TestNoticesAreUpToDate(t *testing.T) {
	const root = "../.."
	want, err := notices(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: run go run ./deploy/notices", File)
	}
}
