package entityfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
)

// Writer writes a file: its events in order, then Close. After an error it
// cannot be used.
type Writer struct {
	w      io.Writer
	sum    hash.Hash
	number uint64
	last   uint64 // sequence of the last event
	about  About
}

// NewWriter starts a file with its description, the module and the base.
func NewWriter(w io.Writer, about About, module []byte) (*Writer, error) {
	about.ModuleBytes = len(module)
	f := &Writer{w: w, sum: sha256.New(), about: about}
	if err := f.write(append([]byte(magic), version)); err != nil {
		return nil, err
	}
	text, err := json.Marshal(about)
	if err == nil {
		err = f.block(kindAbout, text)
	}
	for len(module) > 0 && err == nil {
		n := min(len(module), pieceBytes)
		err = f.block(kindModule, module[:n])
		module = module[n:]
	}
	if b := about.Base; b != nil && err == nil {
		f.last = b.Sequence
		err = f.block(kindState, b.State)
	}
	return f, err
}

// Event writes the next event.
func (f *Writer) Event(e Event) error {
	if e.Sequence != f.last+1 {
		return fmt.Errorf("event %d arrived after event %d", e.Sequence, f.last)
	}
	f.last = e.Sequence
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return f.block(kindEvent, text)
}

// Close ends the file.
func (f *Writer) Close() error {
	if f.last != f.about.Sequence {
		return fmt.Errorf("the history ends at event %d instead of %d", f.last, f.about.Sequence)
	}
	return f.block(kindEnd, f.sum.Sum(nil))
}

func (f *Writer) block(kind byte, payload []byte) error {
	if len(payload) > maxBlock {
		return fmt.Errorf("a block has %d bytes, at most %d are allowed", len(payload), maxBlock)
	}
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	head = binary.LittleEndian.AppendUint32(head, sumOf(f.number, kind, payload))
	f.number++
	if err := f.write(head); err != nil {
		return err
	}
	return f.write(payload)
}

func (f *Writer) write(b []byte) error {
	f.sum.Write(b)
	_, err := f.w.Write(b)
	return err
}
