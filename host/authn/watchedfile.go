package authn

import (
	"bytes"
	"fmt"
	"os"

	"github.com/hostd/hostd/host/readfile"
)

// watchedFile is a file that is read again when it changes.
type watchedFile struct {
	what  string // of the log and the metric
	path  string
	most  int // bytes
	parse func(text []byte) error
	last  []byte      // what was parsed
	next  []byte      // what the last attempt read, and the next one parses where it reads the same; nil: none
	seen  os.FileInfo // of the last attempt; nil before, and where there was nothing
	told  string      // the failure that was told of last; empty after a success
}

// read reads the file and parses it where it is not what was parsed last, and
// two attempts in a row have read it: whoever writes the file may not be done.
// The first attempt parses what it reads. The result of an earlier read stays
// where it fails. It is not for two goroutines at a time.
func (f *watchedFile) read() (changed bool, err error) {
	before := f.next
	f.next = nil
	text, about, err := readfile.Regular(f.path, f.most)
	f.seen = about
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.what, err)
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
	if err := f.parse(text); err != nil {
		return false, fmt.Errorf("%s %s: %w", f.what, f.path, err)
	}
	f.last, f.told = text, ""
	return true, nil
}

// news reports whether a failure of read is another than the one that it
// reported last, or of another file.
func (f *watchedFile) news(err error) bool {
	told := err.Error()
	if f.seen != nil {
		told = fmt.Sprintf("%s, %d bytes at %s", told, f.seen.Size(), f.seen.ModTime())
	}
	defer func() { f.told = told }()
	return told != f.told
}

// moved reports whether the file is another than at the last read, as far as
// its name, size and time tell, or is to be read again to see that it is done.
func (f *watchedFile) moved() bool {
	if f.next != nil {
		return true
	}
	now, err := os.Stat(f.path)
	if err != nil || f.seen == nil {
		return (err == nil) != (f.seen != nil)
	}
	return !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime())
}
