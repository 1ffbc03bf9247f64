package spans

import (
	"bytes"
	"runtime/trace"
	"strings"
	"testing"
)

func asks(questions chan<- int, answers <-chan int) { questions <- 1; <-answers }

func answers(questions <-chan int, answers chan<- int) {
	for range questions {
		answers <- 1
	}
	close(answers)
}

// TestWaitingTimeIsAttributedToAnsweringGoroutine checks that the time of a goroutine that
// waits for another goroutine is split without a gap, and that its waiting time
// is attributed to the other goroutine.
func TestWaitingTimeIsAttributedToAnsweringGoroutine(t *testing.T) {
	const requests = 100
	var text bytes.Buffer
	if err := trace.Start(&text); err != nil {
		t.Fatal(err)
	}
	q, a := make(chan int), make(chan int)
	go answers(q, a)
	for range requests {
		done := make(chan struct{})
		go func() {
			defer close(done)
			asks(q, a)
		}()
		<-done
	}
	close(q)
	<-a
	trace.Stop()
	tr, err := Read(&text, func(f string) string {
		switch {
		case strings.HasSuffix(f, ".answers"):
			return "answers"
		case strings.Contains(f, "TestWaitingTimeIsAttributedToAnsweringGoroutine.func1"):
			return "asks"
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	all := tr.Requests("asks")
	if len(all) != requests {
		t.Fatalf("%d requests, want %d", len(all), requests)
	}
	followed := 0
	for _, spans := range all {
		for i, s := range spans {
			if i > 0 && s.Role != spans[i-1].Next && spans[i-1].Next != "" {
				t.Fatalf("not in order: %+v", spans)
			}
			if s.Role == "answers" && s.Doing == Runs && s.Next == "asks" {
				followed++
				break
			}
		}
		if last := spans[len(spans)-1]; last.Role != "asks" || last.Doing != Runs {
			t.Fatalf("ends otherwise: %+v", spans)
		}
	}
	if followed == 0 {
		t.Error("nobody waited for the answer")
	}
	if u := tr.Usage()["answers"]; u.Wakes == 0 || u.Runs == 0 {
		t.Errorf("who answers did nothing: %+v", u)
	}
}
