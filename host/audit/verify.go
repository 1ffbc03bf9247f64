package audit

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Report describes the files of a log.
type Report struct {
	Files int    `json:"files"`
	Lines uint64 `json:"lines"`
	// First and Last are the times of the first and the last line; zero if
	// there are no lines.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Torn counts lines that a crash or a full disk truncated. Lost counts
	// lines that, according to the log, were never written.
	Torn uint64 `json:"torn"`
	Lost uint64 `json:"lost"`
	// From is the hash of the line before the first remaining line, which
	// rotation has removed; it is empty if the first line of the log still
	// exists. Head is the hash of the last line. An operator who stores Head
	// elsewhere can prove later that no line up to it was changed.
	From string `json:"from"`
	Head string `json:"head"`
	// Key is the key that signed the checkpoints; empty if there are none.
	// Signed is the time of the newest checkpoint, and Unsigned counts the
	// lines after it.
	Key         string    `json:"key"`
	Checkpoints uint64    `json:"checkpoints"`
	Signed      time.Time `json:"signed"`
	Unsigned    uint64    `json:"unsigned"`
}

// Fault says where a log is not intact, and why.
type Fault struct {
	File string
	Line int // line number in the file, from 1
	Text string
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Files lists the files of a log, oldest first. The error is os.ErrNotExist if
// there are none.
func Files(path string) ([]string, error) {
	var out []string
	for n := 1; ; n++ {
		if _, err := os.Stat(rotatedName(path, n)); err != nil {
			break
		}
		out = append([]string{rotatedName(path, n)}, out...)
	}
	if _, err := os.Stat(path); err == nil {
		return append(out, path), nil
	} else if len(out) == 0 {
		return nil, err
	}
	return out, nil
}

// Verify reads the files of a log, oldest first. It checks that each line holds
// the hash of the previous line, and that all checkpoints are signed by the
// same key.
//
// If head is set, a line with that hash must exist. If key is set, all
// checkpoints must be signed by it, there must be at least one checkpoint,
// and after the first checkpoint no line may be unsigned for much longer
// than checkpointEvery.
//
// The node may write to the log at the same time, so the last line may be torn.
// The error is a *Fault or an I/O error; the report then covers what was read
// before.
func Verify(path, head, key string) (Report, error) {
	v := verifier{head: head, key: key}
	files, err := Files(path)
	if err != nil {
		return v.report, err
	}
	for i, name := range files {
		if err := v.file(name, i == len(files)-1); err != nil {
			return v.report, err
		}
	}
	if head != "" && !v.found {
		return v.report, &Fault{File: path, Line: 1, Text: fmt.Sprintf("no line has the hash %.128q: lines up to it were removed or changed", v.head)}
	}
	if key != "" && v.report.Checkpoints == 0 {
		return v.report, &Fault{File: path, Line: 1, Text: "no checkpoint is signed with the key"}
	}
	return v.report, nil
}

type verifier struct {
	report Report
	head   string
	key    string // key of all checkpoints; empty: the key of the first checkpoint
	found  bool
	torn   bool // the last line was incomplete
}

func (v *verifier) file(name string, last bool) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	v.report.Files++
	in := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			if fault := v.line(text[:len(text)-1]); fault != "" {
				return &Fault{name, n, fault}
			}
		case !errors.Is(err, io.EOF):
			if errors.Is(err, bufio.ErrBufferFull) {
				return &Fault{name, n, "is longer than a line of an audit log"}
			}
			return err
		case len(text) == 0:
			return nil
		case !last:
			return &Fault{name, n, "is incomplete, although it is the last line of a rotated file"}
		default:
			v.report.Torn++
			return nil
		}
	}
}

// line checks one line, and returns its fault or "".
func (v *verifier) line(text []byte) (fault string) {
	r := &v.report
	hash := hashOf(text)
	var l line
	whole := json.Unmarshal(text, &l) == nil && len(text) > 0
	switch {
	case whole && r.Head == "" && !v.torn:
		r.From, r.First = l.Prev, l.Time
	case whole && l.Prev != r.Head:
		return "does not match the hash of the previous line: one of the two was changed, or lines between them are missing"
	case whole && v.torn && !l.Torn:
		return "follows an invalid line, but does not record that the previous line was incomplete"
	case !whole && v.torn:
		return "is not a line of an audit log, and neither is the previous line"
	}
	if fault := v.checkpoint(&l, whole); fault != "" {
		return fault
	}
	r.Lines++
	if whole {
		r.Last = l.Time
		r.Lost += l.Lost
	} else {
		r.Torn++
	}
	v.torn, r.Head = !whole, hash
	v.found = v.found || hash == v.head
	return ""
}

// checkpoint checks the signature of a checkpoint. For any other line, it
// checks that the last checkpoint is not too old.
func (v *verifier) checkpoint(l *line, whole bool) (fault string) {
	r := &v.report
	if !whole || l.Checkpoint == nil {
		r.Unsigned++
		if v.key != "" && r.Checkpoints > 0 && whole && l.Time.Sub(r.Signed) > checkpointEvery+checkpointSlack {
			return "has no checkpoint since " + r.Signed.Format(time.RFC3339) + ": checkpoints between them were removed"
		}
		return ""
	}
	key := base64.StdEncoding.EncodeToString(l.Checkpoint.Key)
	switch {
	case v.key == "" && r.Key == "":
	case key != cmp.Or(v.key, r.Key):
		return "is a checkpoint with a different key"
	}
	if !l.holds() {
		return "is a checkpoint with an invalid signature: it or lines before it were changed"
	}
	r.Key, r.Signed, r.Unsigned = key, l.Time, 0
	r.Checkpoints++
	return ""
}
