package eventlog

import "testing"

// TestNotifyWakesEachSubscriberOnce: an entry with many records of one entity
// costs one signal for each of its followers, because this is work of the
// applying goroutine.
func TestNotifyWakesEachSubscriberOnce(t *testing.T) {
	s := subscriptions{Max: 10}
	var wakes []<-chan struct{}
	for _, to := range [][]subject{{{1, "a"}}, {{1, "a"}, {1, "b"}}, {{Shard: 1}}, {{2, "a"}}} {
		wake, _, err := s.Subscribe(to)
		if err != nil {
			t.Fatal(err)
		}
		wakes = append(wakes, wake)
	}
	for range 3 {
		s.collect(1, 1000, func(i int) string { return []string{"a", "c"}[i%2] })
		if len(s.wake) != 3 {
			t.Fatalf("%d signals, want 3", len(s.wake))
		}
		s.Notify(1, 0, nil)
		for i, wake := range wakes {
			select {
			case <-wake:
				if i == 3 {
					t.Error("a follower of a different shard was woken")
				}
			default:
				if i < 3 {
					t.Errorf("follower %d was not woken", i)
				}
			}
		}
	}
}
