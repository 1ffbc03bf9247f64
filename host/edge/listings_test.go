package edge_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/page"
)

// TestListingsComeInPages: whatever the page size, settings, shards and
// modules are listed once each and in order. A page without a requested size
// is small enough for a gRPC client. A token of one listing is rejected by
// other listings.
func TestListingsComeInPages(t *testing.T) {
	s := serve(t, edge.Options{Admin: true})
	modules := modulev1connect.NewModuleServiceClient(s.h2, s.url)
	for i := range 300 {
		if _, err := s.cluster().PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: fmt.Sprintf("k%03d", i), Value: strings.Repeat("v", 16<<10)})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if _, err := modules.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: fmt.Appendf(nil, "\x00asm-%d", i)})); err != nil {
			t.Fatal(err)
		}
	}
	type answer interface {
		proto.Message
		GetNextPageToken() string
	}
	for _, listing := range []struct {
		name   string
		sizes  []uint32
		pages  int // number of pages without a requested size
		ask    func(size uint32, token string) (answer, error)
		listed func(answer) []string
	}{
		{"settings", []uint32{7, 4096}, 5, func(size uint32, token string) (answer, error) {
			res, err := s.cluster().ListSettings(t.Context(), connect.NewRequest(&clusterv1.ListSettingsRequest{KeyPrefix: "k", PageSize: size, PageToken: token}))
			return msg(res), err
		}, func(a answer) (out []string) {
			for _, setting := range a.(*clusterv1.ListSettingsResponse).GetSettings() {
				out = append(out, setting.GetKey())
			}
			return out
		}},
		{"shards", []uint32{1, 3}, 1, func(size uint32, token string) (answer, error) {
			res, err := s.cluster().ListShards(t.Context(), connect.NewRequest(&clusterv1.ListShardsRequest{PageSize: size, PageToken: token}))
			return msg(res), err
		}, func(a answer) (out []string) {
			for _, shard := range a.(*clusterv1.ListShardsResponse).GetShards() {
				out = append(out, fmt.Sprint(shard.GetShardId()))
			}
			return out
		}},
		{"modules", []uint32{1, 2}, 1, func(size uint32, token string) (answer, error) {
			res, err := modules.ListModules(t.Context(), connect.NewRequest(&modulev1.ListModulesRequest{PageSize: size, PageToken: token}))
			return msg(res), err
		}, func(a answer) (out []string) {
			for _, m := range a.(*modulev1.ListModulesResponse).GetModules() {
				out = append(out, m.GetUploadedAt().AsTime().Format("05")+m.GetDigest())
			}
			return out
		}},
	} {
		var whole []string
		for _, size := range append([]uint32{0}, listing.sizes...) {
			var got []string
			token, pages := "", 0
			for {
				a, err := listing.ask(size, token)
				if err != nil {
					t.Fatal(listing.name, err)
				}
				if n := len(listing.listed(a)); proto.Size(a) > page.MaxAnswer || n == 0 || size > 0 && n > int(size) {
					t.Errorf("%s: a page of %d, with %d bytes", listing.name, n, proto.Size(a))
				}
				got = append(got, listing.listed(a)...)
				pages++
				if token = a.GetNextPageToken(); token == "" {
					break
				}
			}
			if size == 0 {
				if whole = got; pages != listing.pages {
					t.Errorf("%s: %d pages, want %d", listing.name, pages, listing.pages)
				}
			} else if !reflect.DeepEqual(got, whole) {
				t.Errorf("%s in pages of %d: %q, want %q", listing.name, size, got, whole)
			}
		}
		if _, err := listing.ask(1, page.Token(page.Filter("other"), []byte("k000"))); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s with another listing's token: %v", listing.name, err)
		}
	}
}

// msg returns the message of a response, or nil.
func msg[T any](res *connect.Response[T]) *T {
	if res == nil {
		return nil
	}
	return res.Msg
}
