// Package entities has the commands that show more about entities than their
// events: records, timers and sends.
package entities

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// recordList is a range of an entity's records.
type recordList struct {
	Records []*cli.Object `json:"records"`
	records []*entityv1.ReadRecordsResponse_Record
	more    bool // there are more than requested
}

// mostPage is the maximum size of a page.
const mostPage = 500

// NewRecords returns the command 'hostd entity records'.
func NewRecords(std cli.Stdio) *cobra.Command {
	var from uint64
	var oldest bool
	var limit int
	c := cli.Look(std, "records TYPE ID", "Print the records of an entity's commands, newest first", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (recordList, error) {
		v := recordList{}
		req := &entityv1.ReadRecordsRequest{EntityType: args[0], EntityId: args[1], FromSequence: from, NewestFirst: !oldest}
		err := pages(limit, func(size int, token string) (int, string, error) {
			req.PageSize, req.PageToken = uint32(size), token
			page, err := cli.Unary(ctx, s, s.EntityService.ReadRecords, req)
			v.records = append(v.records, page.GetRecords()...)
			v.more = page.GetNextPageToken() != ""
			return len(page.GetRecords()), page.GetNextPageToken(), err
		})
		v.Records = cli.Views(v.records)
		return v, err
	}, func(w io.Writer, v recordList) { v.write(w) })
	c.Long = "Prints a line for each command that had an effect: its events, origin and cost, and the messages and timers that it created. " +
		"-o json also prints the payloads."
	c.Flags().Uint64Var(&from, "from", 0, "start with the record that contains the event with this `sequence`")
	c.Flags().BoolVar(&oldest, "oldest-first", false, "print the oldest record first")
	c.Flags().IntVar(&limit, "limit", 100, "maximum `number` of records to print; 0 prints all")
	checkLimit(c, &limit)
	return c
}

func (v recordList) write(w io.Writer) {
	cli.Table(w, "SEQUENCE\tRECORDED\tMADE BY\tEVENTS\tFUEL\tSENDS\tTIMERS\tMODULE\tCOMMAND ID", func(row func(...any)) {
		for _, r := range v.records {
			row(r.GetSequence(), r.GetRecordedAt().AsTime().UTC().Format("2006-01-02T15:04:05.000000Z"), madeBy(r), eventsOf(r), r.GetFuel(), sendsOf(r), timersOf(r),
				fmt.Sprintf("%.12s", r.GetModuleDigest()), cli.Clean(r.GetCommandId()))
		}
	})
}

// Remark implements cli.Remark.
func (v recordList) Remark() (line string, failure error) {
	if v.more {
		line = "there are more; list them with a higher --limit"
	}
	return line, nil
}

// madeBy returns the sender of a command, in words.
func madeBy(r *entityv1.ReadRecordsResponse_Record) string {
	s := r.GetSource()
	text := s.GetKind()
	switch {
	case s.GetAction() != "":
		text += " (" + s.GetAction() + strings.TrimRight(" "+cli.Clean(s.GetTimer()), " ") + ")"
	case s.GetTimer() != "":
		text += " " + cli.Clean(s.GetTimer())
	case s.GetEntityType() != "":
		text += " " + s.GetEntityType() + "/" + cli.Clean(s.GetEntityId())
	case r.GetPrincipal() != nil:
		text += " " + cli.Clean(r.GetPrincipal().GetKind()+":"+r.GetPrincipal().GetName())
	}
	if r.GetRejection() != nil {
		text += ", refused: " + cli.Clean(r.GetRejection().GetCode())
	}
	return text
}

// shownParts is how many parts of one kind are shown in a line.
const shownParts = 3

// some joins the first of a record's parts of one kind.
func some[P any](parts []P, of int, text func(P) string) string {
	out := make([]string, 0, shownParts+1)
	for _, p := range parts[:min(shownParts, len(parts))] {
		out = append(out, cli.Clean(text(p)))
	}
	if of > len(out) {
		out = append(out, fmt.Sprintf("and %d more", of-len(out)))
	}
	return strings.Join(out, ", ")
}

func eventsOf(r *entityv1.ReadRecordsResponse_Record) string {
	return some(r.GetEvents(), int(r.GetEventCount()), (*entityv1.ReadRecordsResponse_Event).GetEventType)
}

func sendsOf(r *entityv1.ReadRecordsResponse_Record) string {
	return some(r.GetMessages(), len(r.GetMessages()), func(s *entityv1.ReadRecordsResponse_Message) string {
		return s.GetEntityType() + "/" + s.GetEntityId() + " " + s.GetCommand()
	})
}

func timersOf(r *entityv1.ReadRecordsResponse_Record) string {
	return some(r.GetTimers(), len(r.GetTimers()), func(t *entityv1.ReadRecordsResponse_TimerChange) string {
		if t.GetCancelled() {
			return "-" + t.GetTimer().GetName()
		}
		return "+" + t.GetTimer().GetName()
	})
}
