package entities

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// timerList is a list of timers of entities.
type timerList struct {
	Timers       []*cli.Object `json:"timers"`
	MissingNodes []string      `json:"missingNodes"`
	timers       []*entityv1.ListTimersResponse_EntityTimer
	unread       uint32 // number of shards that were not read
	more         bool   // there are more than requested
}

// NewTimers returns the command 'hostd entity timers'.
func NewTimers(std cli.Stdio) *cobra.Command {
	var within time.Duration
	var limit int
	var c *cobra.Command
	c = cli.Look(std, "timers [TYPE]", "List the timers of entities, earliest first", 0, 1, func(ctx context.Context, s *cli.Session, args []string) (timerList, error) {
		v := timerList{MissingNodes: []string{}}
		req := &entityv1.ListTimersRequest{EntityType: cli.First(args)}
		if c.Flags().Changed("within") {
			req.DueBy = timestamppb.New(time.Now().Add(within))
		}
		err := pages(limit, func(size int, token string) (int, string, error) {
			req.PageSize, req.PageToken = uint32(size), token
			page, err := cli.Unary(ctx, s, s.EntityService.ListTimers, req)
			v.timers = append(v.timers, page.GetTimers()...)
			v.MissingNodes, v.unread = append([]string{}, page.GetMissingNodes()...), page.GetShardCount()-min(page.GetShardsRead(), page.GetShardCount())
			v.more = page.GetNextPageToken() != ""
			return len(page.GetTimers()), page.GetNextPageToken(), err
		})
		v.Timers = cli.Views(v.timers)
		return v, err
	}, func(w io.Writer, v timerList) {
		now := time.Now()
		cli.Table(w, "DUE\tIN\tTYPE\tID\tTIMER\tCOMMAND\tAGAIN", func(row func(...any)) {
			for _, t := range v.timers {
				due := t.GetTimer().GetDue().AsTime()
				row(due.UTC().Format("2006-01-02T15:04:05.000Z"), inText(due.Sub(now)), t.GetEntityType(), cli.Clean(t.GetEntityId()), cli.Clean(t.GetTimer().GetName()), cli.Clean(t.GetTimer().GetCommand()),
					cli.Clean(strings.TrimSpace(t.GetTimer().GetSchedule()+" "+t.GetTimer().GetTimeZone())))
			}
		})
	})
	c.Long = "Lists the timers of entities on all nodes. An overdue timer is retried automatically; 'hostd entity get' shows why its command fails, " +
		"and 'hostd entity skip-timer' cancels it."
	c.Flags().DurationVar(&within, "within", 0, "list only timers that are overdue or due within this `time`")
	c.Flags().IntVar(&limit, "limit", 100, "maximum `number` of timers to list; 0 lists all")
	checkLimit(c, &limit)
	return c
}

// inText returns the time until a timer is due, in words.
func inText(d time.Duration) string {
	if d < 0 {
		return "late by " + (-d).Round(time.Second).String()
	}
	return d.Round(time.Second).String()
}

// Remark implements cli.Remark.
func (v timerList) Remark() (line string, failure error) {
	var said []string
	if len(v.MissingNodes) > 0 {
		said = append(said, "these nodes did not answer: "+strings.Join(v.MissingNodes, ", "))
	}
	if v.unread > 0 {
		said = append(said, fmt.Sprintf("the timers of %d shards are missing", v.unread))
	}
	if v.more {
		said = append(said, "there are more; list them with a higher --limit")
	}
	return strings.Join(said, "; "), nil
}

// messageList is a list of undelivered messages.
type messageList struct {
	Messages []*cli.Object `json:"messages"`
	messages []*entityv1.ListMessagesResponse_PendingMessage
	more     bool // there are more than requested
}

// NewMessages returns the command 'hostd entity messages'.
func NewMessages(std cli.Stdio) *cobra.Command {
	var limit int
	c := cli.Look(std, "messages [TYPE [ID]]", "List undelivered messages between entities", 0, 2, func(ctx context.Context, s *cli.Session, args []string) (messageList, error) {
		v := messageList{}
		req := &entityv1.ListMessagesRequest{EntityType: cli.First(args)}
		if len(args) > 1 {
			req.EntityId = args[1]
		}
		err := pages(limit, func(size int, token string) (int, string, error) {
			req.PageSize, req.PageToken = uint32(size), token
			page, err := cli.Unary(ctx, s, s.EntityService.ListMessages, req)
			v.messages = append(v.messages, page.GetMessages()...)
			v.more = page.GetNextPageToken() != ""
			return len(page.GetMessages()), page.GetNextPageToken(), err
		})
		v.Messages = cli.Views(v.messages)
		return v, err
	}, func(w io.Writer, v messageList) {
		now := time.Now()
		cli.Table(w, "FROM\tTO\tCOMMAND\tNUMBER\tSENT\tAGO", func(row func(...any)) {
			for _, m := range v.messages {
				row(m.GetSourceType()+"/"+cli.Clean(m.GetSourceId()), m.GetEntityType()+"/"+cli.Clean(m.GetEntityId()), cli.Clean(m.GetCommand()), m.GetNumber(),
					m.GetSentAt().AsTime().UTC().Format("2006-01-02T15:04:05.000Z"), now.Sub(m.GetSentAt().AsTime()).Round(time.Second))
			}
		})
	})
	c.Long = "Lists the messages from all entities, from those of a type, or from one entity that have not reached their destination yet, oldest first in each shard. " +
		"A message that stays here waits for a shard without a leader, a quarantined entity, or a full disk."
	c.Flags().IntVar(&limit, "limit", 100, "maximum `number` of messages to list; 0 lists all")
	checkLimit(c, &limit)
	return c
}

// Remark implements cli.Remark.
func (v messageList) Remark() (line string, failure error) {
	if v.more {
		line = "there are more; list them with a higher --limit"
	}
	return line, nil
}

// pages requests one page after another until it has limit items, or there are
// no more. Limit 0 means all.
func pages(limit int, ask func(size int, token string) (got int, next string, err error)) error {
	for n, token := 0, ""; ; {
		size := mostPage
		if limit > 0 {
			size = min(mostPage, limit-n)
		}
		got, next, err := ask(size, token)
		if n += got; err != nil || next == "" || limit > 0 && n >= limit {
			return err
		}
		token = next
	}
}

func checkLimit(c *cobra.Command, limit *int) {
	cli.Before(c, func([]string) error {
		if *limit < 0 {
			return cli.Usagef("--limit must be 0 or more, got %d", *limit)
		}
		return nil
	})
}
