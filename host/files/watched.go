package files

import (
	"bytes"
	"fmt"
	"os"
)

// Watched is a file that is read again when it changes. It is for one goroutine
// at a time.
type Watched struct {
	What  string // its key, of the log and the metric
	Path  string
	Most  int // bytes
	Parse func(text []byte) error

	last []byte      // what was parsed
	next []byte      // what the last attempt read, and the next one parses where it reads the same; nil: none
	seen os.FileInfo // of the last attempt; nil before, and where there was nothing
	told string      // the failure that was told of last; empty after a success
}

// Read reads the file and parses it where it is not what was parsed last, and
// two attempts in a row have read it: whoever writes the file may not be done.
// The first attempt parses what it reads. The result of an earlier read stays
// where it fails.
func (f *Watched) Read() (changed bool, err error) {
	before := f.next
	f.next = nil
	text, about, err := Regular(f.Path, f.Most)
	f.seen = about
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.What, err)
	}
	text = append(make([]byte, 0, len(text)), text...) // not nil where it is empty
	switch {
	case f.last == nil:
	case bytes.Equal(text, f.last):
		f.told = ""
		return false, nil
	case before == nil || !bytes.Equal(text, before):
		f.next = text
		return false, nil
	}
	if err := f.Parse(text); err != nil {
		return false, fmt.Errorf("%s %s: %w", f.What, f.Path, err)
	}
	f.last, f.told = text, ""
	return true, nil
}

// News reports whether a failure of Read is another than the one that it
// reported last, or of another file.
func (f *Watched) News(err error) bool {
	told := err.Error()
	if f.seen != nil {
		told = fmt.Sprintf("%s, %d bytes at %s", told, f.seen.Size(), f.seen.ModTime())
	}
	defer func() { f.told = told }()
	return told != f.told
}

// Moved reports whether the file is another than at the last read, as far as
// its name, size and time tell, or is to be read again to see that it is done.
func (f *Watched) Moved() bool {
	if f.next != nil {
		return true
	}
	now, err := os.Stat(f.Path)
	if err != nil || f.seen == nil {
		return (err == nil) != (f.seen != nil)
	}
	return !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime())
}
