// Package licenses embeds the licenses and notices of everything that is linked
// into the program, as deploy/notices generates them. It reads no file at run
// time and starts no goroutine.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

//go:embed notices.txt.gz
var compressed []byte

// Text returns all licenses and notices.
func Text() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}
