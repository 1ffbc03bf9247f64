package files

import (
	"bytes"
	"fmt"
	"os"
)

// Watched is a file that is read again when it changes. It is not safe for
// concurrent use.
type Watched struct {
	What  string // the configuration key, for logs and metrics
	Path  string
	Most  int // size limit in bytes
	Parse func(text []byte) error

	last     []byte      // the content that was last parsed
	next     []byte      // read by the last attempt, parsed if the next attempt reads the same; nil if none
	seen     os.FileInfo // state at the last attempt; nil before the first and if there was no file
	reported string      // the last failure for which News returned true; empty after a success
}

// Read reads the file. The first call parses the content at once. Later calls
// parse new content only after two calls in a row have read the same
// content, because the writer of the file may not be done. If Read fails,
// the last parsed content stays in effect.
func (f *Watched) Read() (changed bool, err error) {
	before := f.next
	f.next = nil
	text, about, err := Regular(f.Path, f.Most)
	f.seen = about
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.What, err)
	}
	text = append(make([]byte, 0, len(text)), text...) // not nil if it is empty
	switch {
	case f.last == nil:
	case bytes.Equal(text, f.last):
		f.reported = ""
		return false, nil
	case before == nil || !bytes.Equal(text, before):
		f.next = text
		return false, nil
	}
	if err := f.Parse(text); err != nil {
		return false, fmt.Errorf("%s %s: %w", f.What, f.Path, err)
	}
	f.last, f.reported = text, ""
	return true, nil
}

// News reports whether a failure of Read differs from the last reported
// failure, or concerns a changed file.
func (f *Watched) News(err error) bool {
	told := err.Error()
	if f.seen != nil {
		told = fmt.Sprintf("%s, %d bytes at %s", told, f.seen.Size(), f.seen.ModTime())
	}
	defer func() { f.reported = told }()
	return told != f.reported
}

// HasChanged reports whether Read must be called: the file differs from the last
// read in identity, size or modification time, or new content must be read a
// second time.
func (f *Watched) HasChanged() bool {
	if f.next != nil {
		return true
	}
	now, err := os.Stat(f.Path)
	if err != nil || f.seen == nil {
		return (err == nil) != (f.seen != nil)
	}
	return !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime())
}
