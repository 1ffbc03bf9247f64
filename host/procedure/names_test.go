package procedure

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// verbs are the verbs with which the names of methods begin. Use one of them
// before you add another: a reader has to learn each.
var verbs = []string{
	"Activate", "Cancel", "Change", "Check", "Clear", "Create", "Delete", "Discard", "Down", "Download", "Drain", "Export", "Finalize",
	"Get", "Import", "Initialize", "List", "Move", "Passivate", "Profile", "Put", "Query", "Read", "Rebalance", "Remove", "Resume", "Retry",
	"Rollback", "Send", "Set", "Signal", "Skip", "Start", "Subscribe", "Tail", "Terminate", "Upload", "Verify", "Watch",
}

// TestMethodsAreVerbAndNoun: the name of every method is a verb and the noun that
// it acts on, its messages have its name, and only calls that change nothing have
// the verbs of reads.
func TestMethodsAreVerbAndNoun(t *testing.T) {
	words := regexp.MustCompile(`[A-Z][a-z]*`)
	used := map[string]bool{}
	eachMethod(func(path string, m protoreflect.MethodDescriptor) {
		name := string(m.Name())
		verb := words.FindString(name)
		used[verb] = true
		if !slices.Contains(verbs, verb) || name == verb || name == verb+"Stream" {
			t.Errorf("%s is not a verb and a noun", path)
		}
		if in, out := string(m.Input().Name()), string(m.Output().Name()); in != name+"Request" || out != name+"Response" {
			t.Errorf("%s: the messages are %s and %s", path, in, out)
		}
		reads := slices.Contains([]string{"Get", "List", "Read", "Watch", "Subscribe", "Query", "Tail", "Check", "Download"}, verb)
		if reads && At(path).Changes {
			t.Errorf("%s has side effects, and the verb of a read", path)
		}
		if paged := m.Output().Fields().ByName("next_page_token") != nil; paged && verb != "List" && verb != "Read" && verb != "Get" {
			t.Errorf("%s returns pages: call it List", path)
		}
	})
	for _, v := range verbs {
		if !used[v] {
			t.Errorf("no method has the verb %s", v)
		}
	}
}

// TestFormerPaths: a former path leads to a procedure, and is not the
// current path of one.
func TestFormerPaths(t *testing.T) {
	for now, before := range former {
		if At(now) == nil || At(before) != nil {
			t.Errorf("%s, formerly %s: want the first to be a procedure, and not the second", now, before)
		}
		if service, _, _ := strings.Cut(now[1:], "/"); !strings.HasPrefix(before, "/"+service+"/") {
			t.Errorf("%s was in a different service: %s", now, before)
		}
		if FormerPath(now) != before || CurrentPath(before) != now {
			t.Errorf("%s, formerly %s, is not converted", now, before)
		}
	}
	if len(current) != len(former) {
		t.Errorf("%d former paths of %d procedures", len(current), len(former))
	}
	if p := "/hostd.entity.v1.EntityService/GetState"; FormerPath(p) != p || CurrentPath(p) != p {
		t.Error("a procedure that was not renamed is converted")
	}
}
