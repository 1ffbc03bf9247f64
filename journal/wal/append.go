package wal

// Append appends a record whose payload is the concatenation of the given
// slices, and returns its position. It does no I/O: the record is in memory
// until Flush or Sync, and durable after Sync. The slices are copied and may be
// reused. A record never spans segments; if it does not fit into the last
// segment, it starts a new segment with its checkpoint. Append returns
// ErrPoisoned, ErrClosed, ErrKind or a *RecordTooLargeError; after the last two
// errors the log can still be used.
func (l *Log) Append(kind byte, payload ...[]byte) (Position, error) {
	if l.err != nil {
		return Position{}, l.err
	}
	if kind == epochKind {
		return Position{}, ErrKind
	}
	length := int64(0)
	for _, p := range payload {
		length += int64(len(p))
	}
	if length > l.opts.MaxRecordBytes {
		return Position{}, &RecordTooLargeError{Bytes: length, Limit: l.opts.MaxRecordBytes}
	}
	size := recordBytes(length)
	if l.full || l.next.Offset+size > l.limit() {
		if err := l.roll(length); err != nil {
			return Position{}, err
		}
	}
	l.hasAppended = true
	position := l.next
	synced := int64(0)
	if l.durable.Segment == position.Segment {
		synced = l.durable.Offset
	}
	c := &l.pending[len(l.pending)-1]
	c.buf, l.lastCRC = l.coder.appendRecord(c.buf, position.Offset, synced, kind, payload...)
	l.next.Offset += size
	l.counters.records.Add(1)
	l.counters.payloadBytes.Add(uint64(length))
	return position, nil
}

// limit returns the length of the segment that contains l.next.
func (l *Log) limit() int64 {
	if last := l.segments[len(l.segments)-1]; last.number == l.next.Segment {
		return last.size
	}
	return l.opts.SegmentBytes
}

// roll switches to a new segment, in memory, for a record with a payload of the
// given length.
func (l *Log) roll(length int64) error {
	c, coder, next, err := l.newSegment()
	if err != nil {
		return err
	}
	room := l.opts.SegmentBytes - next.Offset - recordHeaderBytes
	if length > room {
		return &RecordTooLargeError{Bytes: length, Limit: max(0, room)}
	}
	l.pending = append(l.pending, c)
	l.coder, l.next, l.full = coder, next, false
	return nil
}

// newSegment encodes the header page and the checkpoint of the segment after
// l.next.
func (l *Log) newSegment() (c chunk, k coder, next Position, err error) {
	h := segmentHeader{
		id:            l.id,
		number:        l.next.Segment + 1,
		epoch:         l.coder.epoch + 1,
		size:          l.opts.SegmentBytes,
		previousEnd:   l.next.Offset,
		previousEpoch: l.coder.epoch,
	}
	c = chunk{epoch: h.epoch, number: h.number, buf: make([]byte, headerBytes)}
	h.encode(c.buf)
	k = newCoder(l.id, h.number, h.epoch)
	if l.checkpoint != nil {
		payload := l.checkpoint(nil)
		if room := h.size - headerBytes - recordHeaderBytes; int64(len(payload)) > room {
			return c, k, next, &RecordTooLargeError{Bytes: int64(len(payload)), Limit: room}
		}
		c.buf, c.prologueCRC = k.appendRecord(c.buf, headerBytes, 0, CheckpointKind, payload)
	}
	c.prologue = len(c.buf)
	return c, k, Position{h.number, int64(c.prologue)}, nil
}
