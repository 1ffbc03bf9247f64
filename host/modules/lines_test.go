package modules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// paced returns lines of guests that never exceed the rate: the clock advances
// by a second with each line.
func paced() *GuestLines {
	now := time.Unix(1, 0)
	return &GuestLines{Now: func() time.Time { now = now.Add(time.Second); return now }}
}

func theEntity(entityType, id string) sharding.EntityID {
	return sharding.EntityID{Type: entityType, ID: id}
}

func follow(t *testing.T, l *GuestLines, of sharding.EntityID) *LineFollower {
	t.Helper()
	f, err := l.Follow(of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// rest reads from a follower until there is nothing more.
func rest(f *LineFollower) (texts []string, lost uint64) {
	for {
		lines, missed := f.Read()
		lost += missed
		for _, line := range lines {
			texts = append(texts, line.Text)
		}
		if len(lines) == 0 {
			return texts, lost
		}
	}
}

// TestFollowerReadsItsTypeAndEntity checks that a follower gets the existing and the new
// lines of its type and entity, and no others.
func TestFollowerReadsItsTypeAndEntity(t *testing.T) {
	l := paced()
	l.Add(theEntity("a", "1"), journal.Digest{1}, LineInfo, []byte("one"))
	l.Add(theEntity("b", "1"), journal.Digest{2}, LineWarn, []byte("other"))
	all, one := follow(t, l, theEntity("a", "")), follow(t, l, theEntity("a", "2"))
	l.Add(theEntity("a", "2"), journal.Digest{1}, LineFault, []byte("t\xffwo"))
	select {
	case <-all.Wake():
	default:
		t.Error("a line wakes nobody")
	}
	if lines, lost := all.Read(); len(lines) != 2 || lost != 0 || lines[0].Text != "one" || lines[1].Text != "t?wo" || lines[1].Entity.ID != "2" ||
		lines[1].Level.String() != "fault" || lines[1].Module != (journal.Digest{1}) || !lines[1].At.After(lines[0].At) {
		t.Errorf("%+v, lost %d", lines, lost)
	}
	if texts, lost := rest(one); fmt.Sprint(texts) != "[t?wo]" || lost != 0 {
		t.Errorf("%v, lost %d", texts, lost)
	}
}

// TestSlowFollowerCountsLostLines checks that overwritten lines are counted
// exactly, both at the bound on lines and at the bound on bytes, and that the
// newest lines are kept.
func TestSlowFollowerCountsLostLines(t *testing.T) {
	for _, size := range []int{4, 700, 1000} {
		l := paced()
		f := follow(t, l, theEntity("a", ""))
		const wrote = 3*maxLines + 17
		pad := strings.Repeat("x", size)
		for i := range wrote {
			l.Add(theEntity("a", fmt.Sprint("id-", i%7)), journal.Digest{}, LineInfo, fmt.Appendf(nil, "%d %s", i, pad))
			l.Add(theEntity("b", "1"), journal.Digest{}, LineInfo, []byte("noise"))
		}
		texts, lost := rest(f)
		if len(texts) == 0 || uint64(len(texts))+lost != wrote {
			t.Fatalf("size %d: %d lines and %d lost of %d", size, len(texts), lost, wrote)
		}
		for i, text := range texts {
			if want := fmt.Sprintf("%d %s", wrote-len(texts)+i, pad); text != want {
				t.Fatalf("size %d: line %d is %.20q, want %.20q", size, i, text, want)
			}
		}
		if least := min(maxLines/2, maxBytes/(size+30))*3/4 - 1; len(texts) < least {
			t.Errorf("size %d: %d lines are kept", size, len(texts))
		}
	}
}

// TestNoisyTypeDoesNotEvictOthersLines checks that a type that writes
// endlessly does not push out the lines of other types, and that its
// followers learn how many lines are not kept.
func TestNoisyTypeDoesNotEvictOthersLines(t *testing.T) {
	now := time.Unix(1, 0)
	l := &GuestLines{Now: func() time.Time { return now }}
	noisy, quiet := follow(t, l, theEntity("noisy", "")), follow(t, l, theEntity("quiet", ""))
	l.Add(theEntity("quiet", "1"), journal.Digest{}, LineInfo, []byte("hello"))
	const wrote = 100_000
	line := []byte(strings.Repeat("x", 100))
	for range wrote {
		l.Add(theEntity("noisy", "1"), journal.Digest{}, LineInfo, line)
	}
	if texts, lost := rest(quiet); fmt.Sprint(texts) != "[hello]" || lost != 0 {
		t.Errorf("%v, lost %d", texts, lost)
	}
	if texts, lost := rest(noisy); len(texts) < 1000 || uint64(len(texts))+lost != wrote {
		t.Errorf("%d lines and %d lost of %d", len(texts), lost, wrote)
	}
	now = now.Add(time.Second)
	l.Add(theEntity("noisy", "1"), journal.Digest{}, LineInfo, line)
	if texts, lost := rest(noisy); len(texts) != 1 || lost != 0 {
		t.Errorf("a second later: %d lines, lost %d", len(texts), lost)
	}
}

// TestFollowersAreBounded checks that a node has a maximum number of
// followers, and accepts another follower after one has closed.
func TestFollowersAreBounded(t *testing.T) {
	l := paced()
	var last *LineFollower
	for range maxFollowers {
		last = follow(t, l, theEntity("a", ""))
	}
	if _, err := l.Follow(theEntity("a", "")); !errors.Is(err, ErrManyFollowers) {
		t.Errorf("one more: %v", err)
	}
	last.Close()
	follow(t, l, theEntity("a", ""))
}

// TestUnfollowedLinesDoNotAllocate checks that after the first line of
// a type, lines are copied into existing memory.
func TestUnfollowedLinesDoNotAllocate(t *testing.T) {
	l := paced()
	e, text := theEntity("a", "1"), []byte("a line like many others")
	l.Add(e, journal.Digest{}, LineInfo, text)
	if n := testing.AllocsPerRun(1000, func() { l.Add(e, journal.Digest{}, LineInfo, text) }); n != 0 {
		t.Errorf("a line allocates %v times", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	l := paced()
	e, text := theEntity("a", "1"), []byte("a line like many others")
	b.ReportAllocs()
	for b.Loop() {
		l.Add(e, journal.Digest{}, LineInfo, text)
	}
}
