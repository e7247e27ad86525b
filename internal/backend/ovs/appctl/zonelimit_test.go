// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestZoneLimits(t *testing.T) {
	dir, requests := serve(t, `{"id":0,"result":"default limit=0\nzone=1,limit=1000,count=12\nzone=65535,limit=5,count=0\n","error":null}`)
	got, err := Vswitchd(dir).ZoneLimits(t.Context(), "netdev@ovs-netdev")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint16]ZoneLimit{1: {1000, 12}, 65535: {5, 0}}, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	want := `"method":"dpctl/ct-get-limits","params":["netdev@ovs-netdev"]`
	if r := <-requests; !strings.Contains(r, want) {
		t.Errorf("request %s, want %s", r, want)
	}
}

func TestChangeZoneLimits(t *testing.T) {
	dir, requests := serve(t, `{"id":0,"result":"","error":null}`)
	c := Vswitchd(dir)
	if err := c.SetZoneLimits(t.Context(), "netdev@ovs-netdev", map[uint16]int{7: 20, 1: 1000}); err != nil {
		t.Fatal(err)
	}
	want := `"method":"dpctl/ct-set-limits","params":["netdev@ovs-netdev","zone=1,limit=1000","zone=7,limit=20"]`
	if r := <-requests; !strings.Contains(r, want) {
		t.Errorf("request %s, want %s", r, want)
	}
	if err := c.DeleteZoneLimits(t.Context(), "netdev@ovs-netdev", []uint16{7, 9}); err != nil {
		t.Fatal(err)
	}
	want = `"method":"dpctl/ct-del-limits","params":["netdev@ovs-netdev","zone=7,9"]`
	if r := <-requests; !strings.Contains(r, want) {
		t.Errorf("request %s, want %s", r, want)
	}
}

func TestZoneLimitsNotUnderstood(t *testing.T) {
	for _, text := range []string{"zone=1", "zone=65536,limit=1,count=1", "zone=x,limit=1,count=1", "zone=1,limit=,count=2"} {
		if got, err := parseZoneLimits(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
	dir, _ := serve(t, `{"id":0,"result":"many","error":null}`)
	if _, n, err := Vswitchd(dir).ConnectionTable(t.Context(), "netdev@ovs-netdev"); err == nil || !strings.Contains(err.Error(), `"many" is no number`) {
		t.Errorf("%d, %v; want an error that quotes the answer", n, err)
	}
}

func FuzzParseZoneLimits(f *testing.F) {
	f.Add("default limit=0\nzone=1,limit=1000,count=12\n")
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := parseZoneLimits(text)
		if err != nil && limits != nil {
			t.Errorf("%q: %v beside the error %v", text, limits, err)
		}
	})
}
