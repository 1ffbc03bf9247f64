package entityfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Reader reads a file: call Next until io.EOF. It keeps the module and one
// event in memory.
type Reader struct {
	About  About
	Module []byte

	r      io.Reader
	sum    hash.Hash
	number uint64
	last   uint64 // sequence of the last event
	ended  bool
}

// NewReader reads the description of the entity, the module, and the base if
// there is one. The error wraps ErrDamaged or ErrUnsupported, or is r's.
func NewReader(r io.Reader) (*Reader, error) {
	f := &Reader{r: r, sum: sha256.New()}
	head := make([]byte, len(magic)+1)
	if err := f.read(head); err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	if string(head[:len(magic)]) != magic || head[len(magic)] != version {
		return nil, ErrUnsupported
	}
	kind, text, err := f.block()
	if err == nil && (kind != kindAbout || json.Unmarshal(text, &f.About) != nil || f.About.ModuleBytes < 0 || f.About.ModuleBytes > MaxModuleBytes) {
		err = ErrDamaged
	}
	for err == nil && len(f.Module) < f.About.ModuleBytes {
		var piece []byte
		if kind, piece, err = f.block(); err == nil && (kind != kindModule || len(piece) != min(pieceBytes, f.About.ModuleBytes-len(f.Module))) {
			err = ErrDamaged
		}
		f.Module = append(f.Module, piece...)
	}
	if err != nil {
		return nil, err
	}
	if digest := sha256.Sum256(f.Module); hex.EncodeToString(digest[:]) != f.About.ModuleDigest {
		return nil, fmt.Errorf("%w: the module has a different digest", ErrDamaged)
	}
	if b := f.About.Base; b != nil {
		kind, state, err := f.block()
		if err != nil {
			return nil, err
		}
		if kind != kindState || b.Sequence == 0 || b.Sequence > f.About.Sequence {
			return nil, ErrDamaged
		}
		b.State, f.last = state, b.Sequence
	}
	return f, nil
}

// Next returns the next event. After the last event it checks the end of the
// file and returns io.EOF.
func (f *Reader) Next() (e Event, err error) {
	if f.ended {
		return e, io.EOF
	}
	sum := f.sum.Sum(nil)
	kind, payload, err := f.block()
	if err != nil {
		return e, err
	}
	switch kind {
	case kindEvent:
		if json.Unmarshal(payload, &e) != nil || e.Sequence != f.last+1 || e.Sequence > f.About.Sequence {
			return e, ErrDamaged
		}
		f.last = e.Sequence
		return e, nil
	case kindEnd:
		if n, _ := f.r.Read(make([]byte, 1)); !bytes.Equal(payload, sum) || f.last != f.About.Sequence || n > 0 {
			return e, ErrDamaged
		}
		f.ended = true
		return e, io.EOF
	}
	return e, ErrDamaged
}

func (f *Reader) block() (kind byte, payload []byte, err error) {
	head := make([]byte, headBytes)
	if err := f.read(head); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxBlock {
		return 0, nil, ErrDamaged
	}
	payload = make([]byte, n)
	if err := f.read(payload); err != nil {
		return 0, nil, err
	}
	if binary.LittleEndian.Uint32(head[5:]) != sumOf(f.number, head[0], payload) {
		return 0, nil, ErrDamaged
	}
	f.number++
	return head[0], payload, nil
}

// read fills b; if the file ends first, it is damaged.
func (f *Reader) read(b []byte) error {
	_, err := io.ReadFull(f.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrDamaged
	}
	f.sum.Write(b)
	return err
}
