package abi

import "encoding/binary"

// HeaderBytes is the size of a frame's header: kind u8, length u32 little
// endian.
const HeaderBytes = 5

// MaxFieldBytes limits a field whose length is written as u16.
const MaxFieldBytes = 1<<16 - 1

// Frame is a decoded frame. Body is a sub-slice of the input.
type Frame struct {
	Kind Kind
	Body []byte
}

// Reader iterates over frames without allocating. The zero value reads nothing;
// use NewReader or Reset. A Reader is not safe for concurrent use.
type Reader struct {
	data   []byte
	offset int
	index  int
}

// NewReader returns a reader of data, which it does not copy.
func NewReader(data []byte) Reader { return Reader{data: data} }

// Reset starts again with data.
func (r *Reader) Reset(data []byte) { *r = Reader{data: data} }

// Next returns the next frame, or false at the end. The error is a *FrameError;
// Next returns the same error from then on.
func (r *Reader) Next() (Frame, bool, error) {
	rest := r.data[r.offset:]
	if len(rest) == 0 {
		return Frame{}, false, nil
	}
	if len(rest) < HeaderBytes {
		return Frame{}, false, r.fault(0, "header is cut off")
	}
	kind := Kind(rest[0])
	length := binary.LittleEndian.Uint32(rest[1:])
	if uint64(length) > uint64(len(rest)-HeaderBytes) {
		return Frame{}, false, r.fault(kind, "body is cut off")
	}
	end := HeaderBytes + int(length)
	r.offset += end
	r.index++
	return Frame{Kind: kind, Body: rest[HeaderBytes:end:end]}, true, nil
}

func (r *Reader) fault(kind Kind, reason string) error {
	return &FrameError{Index: r.index, Offset: r.offset, Kind: kind, Reason: reason, Cause: ErrMalformed}
}

// AppendFrame appends one frame to dst.
func AppendFrame[T string | []byte](dst []byte, kind Kind, body T) []byte {
	return append(appendHeader(dst, kind, len(body)), body...)
}

// BeginFrame appends the header of a frame whose body the caller appends next.
// EndFrame, called with the mark, writes the length.
func BeginFrame(dst []byte, kind Kind) (out []byte, mark int) {
	dst = append(dst, byte(kind), 0, 0, 0, 0)
	return dst, len(dst)
}

// EndFrame closes the frame that BeginFrame opened at mark: everything
// appended since is its body.
func EndFrame(dst []byte, mark int) {
	binary.LittleEndian.PutUint32(dst[mark-4:], uint32(len(dst)-mark))
}

// AppendField appends a u16 length and the text. It panics if the text is
// longer than MaxFieldBytes; callers validate the length of names first.
func AppendField[T string | []byte](dst []byte, text T) []byte {
	if len(text) > MaxFieldBytes {
		panic("abi: field longer than 65535 bytes")
	}
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(text))), text...)
}

func appendHeader(dst []byte, kind Kind, length int) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(kind)), uint32(length))
}

// fieldBytes returns the encoded size of a field of n bytes.
func fieldBytes(n int) int { return 2 + n }

// cutField splits a field with a u16 length off body.
func cutField(body []byte) (field, rest []byte, ok bool) {
	if len(body) < 2 {
		return nil, nil, false
	}
	end := 2 + int(binary.LittleEndian.Uint16(body))
	if end > len(body) {
		return nil, nil, false
	}
	return body[2:end:end], body[end:], true
}
