package entityapi

import (
	"context"
	"errors"
	"math"
	"slices"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/journal"
)

// errRecordPageFull stops the reading of a history at the end of a page.
var errRecordPageFull = errors.New("enough records")

// read returns the page.
func (p *recordPage) read(ctx context.Context) (*entityv1.ReadRecordsResponse, error) {
	first, last, err := p.Records.Span(p.id)
	if err != nil {
		return nil, err
	}
	least := first // the first sequence that can be read
	if first <= 1 {
		least = 0 // so that records before the first event are included
	}
	if p.newest {
		return p.readBack(ctx, least, last)
	}
	from, after := max(p.from, least), journal.Position{}
	if p.after != nil {
		from, after = p.after.sequence, p.after.at
	} else if p.from > 0 {
		from = p.from
	}
	return p.readOn(ctx, from, after, nil)
}

// readOn returns the records after a position. If last is not nil, the page
// ends with the record at last; otherwise it ends when it is full.
func (p *recordPage) readOn(ctx context.Context, from journal.Sequence, after journal.Position, last *journal.Position) (*entityv1.ReadRecordsResponse, error) {
	out := &entityv1.ReadRecordsResponse{}
	bytes, end := 0, recordPlace{}
	err := p.Records.Records(ctx, p.id, from, func(at journal.Position, rec *journal.Record) error {
		switch {
		case !after.Less(at):
			return ctx.Err()
		case last == nil && (len(out.Records) == p.size || bytes >= recordPageBytes):
			out.NextPageToken = p.token(end)
			return errRecordPageFull
		case last != nil && last.Less(at):
			return errRecordPageFull
		}
		m, err := p.message(rec)
		if err != nil {
			return err
		}
		out.Records = append(out.Records, m)
		bytes, end = bytes+recordBytes(rec), recordPlace{rec.Last(), at}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errRecordPageFull) {
		return nil, err
	}
	return out, nil
}

// scannedRecord is a record that readBack has read.
type scannedRecord struct {
	at       journal.Position
	expected journal.Sequence
	weight   int
}

// readBack returns the newest records before a place, newest first. Records can
// only be read forwards, and a record may have any number of events, including
// none. So readBack reads twice: first to find where the page begins, and then
// to read the page.
func (p *recordPage) readBack(ctx context.Context, least, last journal.Sequence) (*entityv1.ReadRecordsResponse, error) {
	newest, before := last, journal.Position{Index: math.MaxUint64}
	wanted := journal.Sequence(math.MaxUint64) // the page ends with the record that contains this sequence, or the last record before it
	switch {
	case p.after != nil:
		newest, before = p.after.sequence, p.after.at
	case p.from > 0:
		newest, wanted = min(p.from, last), p.from
	}
	if asked := p.after != nil || p.from > 0; asked && newest < least && newest < last {
		return nil, &journal.TruncatedError{First: least}
	}
	from := least
	if newest > least+journal.Sequence(p.size) {
		from = newest - journal.Sequence(p.size) + 1
	}
	var found []scannedRecord
	bytes, dropped := 0, from > least
	err := p.Records.Records(ctx, p.id, from, func(at journal.Position, rec *journal.Record) error {
		if !at.Less(before) || rec.Expected >= wanted {
			return errRecordPageFull
		}
		found = append(found, scannedRecord{at, rec.Expected, recordBytes(rec)})
		bytes += found[len(found)-1].weight
		for len(found) > 1 && (len(found) > p.size || bytes-found[0].weight >= recordPageBytes) {
			bytes, dropped = bytes-found[0].weight, true
			found = slices.Delete(found, 0, 1)
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errRecordPageFull) || len(found) == 0 {
		if errors.Is(err, errRecordPageFull) {
			err = nil
		}
		return &entityv1.ReadRecordsResponse{}, err
	}
	oldest := found[0]
	out, err := p.readOn(ctx, from, positionBefore(oldest.at), &found[len(found)-1].at)
	if err != nil {
		return nil, err
	}
	slices.Reverse(out.Records)
	if dropped && oldest.expected >= least {
		out.NextPageToken = p.token(recordPlace{oldest.expected, oldest.at})
	}
	return out, nil
}

// positionBefore returns the largest position before at. There may be no record at it.
func positionBefore(at journal.Position) journal.Position {
	if at.Ordinal > 0 {
		return journal.Position{Index: at.Index, Ordinal: at.Ordinal - 1}
	}
	return journal.Position{Index: at.Index - 1, Ordinal: math.MaxUint32}
}
