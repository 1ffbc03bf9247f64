package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// storyByCurl runs the story with plain HTTP requests, sent by curl.
func storyByCurl(t *testing.T) func(context.Context, config) ([]string, error) {
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	return func(ctx context.Context, c config) ([]string, error) {
		return (&curl{path: path, config: c}).story(ctx)
	}
}

// curl sends requests to one node after another, as described on the page about
// plain HTTP.
type curl struct {
	path string
	config
	at, sent int
}

// httpAnswer is the response to a request.
type httpAnswer struct {
	status int
	header http.Header
	body   struct {
		Balance        json.Number
		Open           bool
		Code           string
		ActualSequence string
		Violations     []struct{ Field string }
	}
}

func (a httpAnswer) sequence() string { return strings.Trim(a.header.Get("ETag"), `"`) }

// refusal describes the response to a command that did not take effect.
func (a httpAnswer) refusal() string {
	switch a.status {
	case http.StatusUnprocessableEntity:
		return "rejected " + a.body.Code
	case http.StatusPreconditionFailed:
		return "it is at " + a.body.ActualSequence
	case http.StatusOK:
		return "done"
	}
	out := a.body.Code + " "
	for _, v := range a.body.Violations {
		out += v.Field
	}
	return out
}

// ask sends a request until a node answers. If the request is a command, it has
// an idempotency key and states when it was first sent.
func (c *curl) ask(ctx context.Context, path string, arguments ...string) (a httpAnswer, err error) {
	first := time.Time{}
	for {
		args := append([]string{"--silent", "--show-error", "--include", "--max-time", "4"}, arguments...)
		if !first.IsZero() {
			args = append(args, "--header", fmt.Sprintf("Hostd-First-Attempt-Age: %s", time.Since(first)))
		}
		began := time.Now()
		out, failed := exec.CommandContext(ctx, c.path, append(args, c.Addresses[c.at]+"/e/account/"+c.ID+path)...).Output()
		if failed == nil {
			res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), nil)
			if err != nil {
				return a, err
			}
			a = httpAnswer{status: res.StatusCode, header: res.Header}
			if err := json.NewDecoder(res.Body).Decode(&a.body); err != nil {
				return a, fmt.Errorf("%s: %w", out, err)
			}
			if a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout {
				return a, nil
			}
		}
		if first.IsZero() {
			first = began
		}
		c.at = (c.at + 1) % len(c.Addresses)
		select {
		case <-time.After(50 * time.Millisecond): // so that the nodes are not flooded
		case <-ctx.Done():
			return a, errors.Join(ctx.Err(), failed)
		}
	}
}

// send sends a command with a new idempotency key, unless it is given one.
func (c *curl) send(ctx context.Context, command, payload string, headers ...string) (httpAnswer, error) {
	c.sent++
	args := []string{"--data-binary", payload}
	for _, h := range append([]string{fmt.Sprintf("Idempotency-Key: %s-%d", c.ID, c.sent)}, headers...) {
		args = append(args, "--header", h)
	}
	return c.ask(ctx, "/"+command, args...)
}

func (c *curl) story(ctx context.Context) (told []string, err error) {
	following := make(chan string, 1)
	go func() { following <- c.follow(ctx) }()
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	var a httpAnswer
	duplicate := func() bool { return a.header.Get("Hostd-Duplicate") == "true" }
	if a, err = c.send(ctx, "open", "null"); err != nil {
		return told, err
	}
	tell("open: balance %s, sequence %s, events %s, duplicate %v", a.body.Balance, a.sequence(), a.header.Get("Hostd-Event-Count"), duplicate())
	if a, err = c.send(ctx, "deposit", `{"amount":100}`); err != nil {
		return told, err
	}
	tell("deposit 100: balance %s, sequence %s", a.body.Balance, a.sequence())
	if a, err = c.send(ctx, "withdraw", `{"amount":500}`); err != nil {
		return told, err
	}
	tell("withdraw 500: %s", a.refusal())
	if a, err = c.send(ctx, "deposit", `{"amount":0}`); err != nil {
		return told, err
	}
	tell("deposit 0: %s", a.refusal())
	c.sent++
	for range 2 {
		c.sent-- // use the same idempotency key again
		if a, err = c.send(ctx, "deposit", `{"amount":5}`); err != nil {
			return told, err
		}
		tell("deposit 5: balance %s, sequence %s, duplicate %v", a.body.Balance, a.sequence(), duplicate())
	}
	if a, err = c.send(ctx, "withdraw", `{"amount":1}`, `If-Match: "1"`); err != nil {
		return told, err
	}
	tell("withdraw 1 at 1: %s", a.refusal())
	if a, err = c.send(ctx, "deposit", `{"amuont":1}`); err != nil {
		return told, err
	}
	tell("deposit of what is misspelt: %s", a.refusal())
	killing := make(chan error, 1)
	for i := range 20 {
		if i == 7 {
			go func() { killing <- killed(ctx, c.config) }()
		}
		if a, err = c.send(ctx, "deposit", `{"amount":1}`); err != nil {
			return told, err
		}
	}
	if err := <-killing; err != nil {
		return told, err
	}
	tell("20 deposits: balance %s, sequence %s", a.body.Balance, a.sequence())
	if a, err = c.ask(ctx, "/q/balance"); err != nil {
		return told, err
	}
	tell("query: balance %s, sequence %s", a.body.Balance, a.sequence())
	if a, err = c.ask(ctx, ""); err != nil {
		return told, err
	}
	tell("state: balance %s, open %v", a.body.Balance, a.body.Open)
	select {
	case line := <-following:
		return append(told, line), nil
	case <-ctx.Done():
		return told, ctx.Err()
	}
}

// follow receives the events of the type. If a node goes away, it continues
// after the last event at another node, as a browser does.
func (c *curl) follow(ctx context.Context) string {
	n, sum, inOrder, first, last := 0, 0, true, "", ""
	for at := 0; ctx.Err() == nil; at = (at + 1) % len(c.Addresses) {
		args := []string{"--silent", "--no-buffer", "--header", "Accept: text/event-stream"}
		if last != "" {
			args = append(args, "--header", "Last-Event-ID: "+last)
		}
		attempt, cancel := context.WithCancel(ctx)
		cmd := exec.CommandContext(attempt, c.path, append(args, c.Addresses[at]+"/e/account/events")...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			cancel()
			return "events: " + err.Error()
		}
		cursor, done := "", false
		for lines := bufio.NewScanner(out); !done && lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				cursor = id
			}
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			var e struct {
				EntityID, Sequence, Type string
				JSON                     struct{ Amount int }
			}
			if !ok || json.Unmarshal([]byte(text), &e) != nil || e.Sequence == "" {
				continue
			}
			last = cursor
			if e.EntityID != c.ID {
				continue
			}
			if n++; n == 1 {
				first = e.Type
			}
			inOrder = inOrder && e.Sequence == strconv.Itoa(n)
			if e.Type == "deposited" {
				sum += e.JSON.Amount
			}
			done = n >= 23
		}
		cancel()
		_ = cmd.Wait() // curl ends when its node stops or when it is stopped, so the exit code is ignored
		if done {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond): // so that the nodes are not flooded
		case <-ctx.Done():
		}
	}
	return fmt.Sprintf("events: %d, in order %v, the first %s, deposited %d", n, inOrder, first, sum)
}
