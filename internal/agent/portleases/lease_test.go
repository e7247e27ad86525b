// SPDX-License-Identifier: Apache-2.0

package portleases

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend"
)

// noon is when tests begin, and at a time after it as the API has it.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

// got is what a machine has got for an hour.
func got(ipv6 bool, name string, addresses ...string) backend.Lease {
	l := backend.Lease{IPv6: ipv6, HostName: name, Duration: time.Hour}
	for _, a := range addresses {
		l.Addresses = append(l.Addresses, netip.MustParseAddr(a))
	}
	return l
}

// wrote is what the API has of a machine that was acknowledged its addresses some time after noon.
func wrote(after time.Duration, name string, addresses ...string) *v1alpha1.PortLease {
	return &v1alpha1.PortLease{HostName: name, Addresses: addresses, RenewTime: at(after), ExpireTime: at(after + time.Hour)}
}

func TestLeaseOfBothProtocols(t *testing.T) {
	const minute = time.Minute
	type event struct {
		after time.Duration
		lease backend.Lease
	}
	for _, tc := range []struct {
		name   string
		have   *v1alpha1.PortLease // in the API, before the first event
		events []event
		after  time.Duration // when the lease is looked at
		want   *v1alpha1.PortLease
	}{
		{"DHCP", nil, []event{{0, got(false, "db", "10.0.0.5")}}, 0, wrote(0, "db", "10.0.0.5")},
		{"DHCPv6", nil, []event{{0, got(true, "db", "fd00::5", "fd00::6")}}, 0, wrote(0, "db", "fd00::5", "fd00::6")},
		{"both", nil, []event{{minute, got(true, "", "fd00::5")}, {0, got(false, "db", "10.0.0.5")}}, minute, wrote(minute, "db", "10.0.0.5", "fd00::5")},
		{"two names", nil, []event{{0, got(false, "db", "10.0.0.5")}, {minute, got(true, "db.red.example", "fd00::5")}}, minute, wrote(minute, "db", "10.0.0.5", "fd00::5")},
		{"a name by DHCPv6 alone", nil, []event{{0, got(true, "db", "fd00::5")}, {minute, got(false, "", "10.0.0.5")}}, minute, wrote(minute, "db", "10.0.0.5", "fd00::5")},
		{"no name any more", nil, []event{{0, got(false, "db", "10.0.0.5")}, {minute, got(false, "", "10.0.0.5")}}, minute, wrote(minute, "", "10.0.0.5")},
		{"another address", nil, []event{{0, got(false, "db", "10.0.0.5")}, {minute, got(false, "db", "10.0.0.6")}}, minute, wrote(minute, "db", "10.0.0.6")},
		{"given back", nil, []event{{0, got(false, "db", "10.0.0.5")}, {minute, got(false, "")}}, minute, nil},
		{"one of two given back", nil, []event{{0, got(false, "db", "10.0.0.5")}, {0, got(true, "vm", "fd00::5")}, {minute, got(false, "")}}, minute, wrote(0, "vm", "fd00::5")},
		{"expired", nil, []event{{0, got(false, "db", "10.0.0.5")}}, time.Hour, nil},
		{"one of two expired", nil, []event{{0, got(false, "db", "10.0.0.5")}, {30 * minute, got(true, "", "fd00::5")}}, time.Hour, wrote(30*minute, "", "fd00::5")},
		{"fractions of a second", nil, []event{{300 * time.Millisecond, got(false, "", "10.0.0.5")}}, minute, wrote(0, "", "10.0.0.5")},

		{"the API has the other protocol's", wrote(0, "db", "10.0.0.5", "fd00::5"), []event{{minute, got(true, "", "fd00::6")}}, minute, wrote(minute, "db", "10.0.0.5", "fd00::6")},
		{"that has expired", wrote(-2*time.Hour, "db", "10.0.0.5", "fd00::5"), []event{{minute, got(true, "", "fd00::6")}}, minute, wrote(minute, "", "fd00::6")},
		{"the API has one that was given back", wrote(0, "db", "10.0.0.5"), []event{{minute, got(false, "")}}, minute, nil},
		{"the API has no times", &v1alpha1.PortLease{Addresses: []string{"fd00::5"}}, []event{{0, got(false, "", "10.0.0.5")}}, 0, wrote(0, "", "10.0.0.5")},
		{"the API has no addresses", wrote(0, "db", "bad", "", "10.0.0.9"), []event{{0, got(false, "", "10.0.0.5")}}, 0, wrote(0, "", "10.0.0.5")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var g grants
			for _, e := range tc.events {
				g.add(e.lease, noon.Add(e.after))
			}
			g.restore(tc.have)
			if diff := cmp.Diff(tc.want, g.lease(noon.Add(tc.after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the API has is read once: what this agent has seen since then is newer.
func TestRestoredOnce(t *testing.T) {
	var g grants
	g.add(got(false, "db", "10.0.0.5"), noon)
	g.restore(nil)
	g.restore(wrote(0, "old", "10.0.0.4", "fd00::4"))
	if diff := cmp.Diff(wrote(0, "db", "10.0.0.5"), g.lease(noon)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPatch(t *testing.T) {
	for _, tc := range []struct {
		lease *v1alpha1.PortLease
		want  string
	}{
		{nil, `{"lease":null}`},
		{wrote(0, "db", "10.0.0.5"), `{"lease":{"addresses":["10.0.0.5"],"expireTime":"2026-01-02T13:00:00Z","hostName":"db","renewTime":"2026-01-02T12:00:00Z"}}`},
		{wrote(0, "", "10.0.0.5"), `{"lease":{"addresses":["10.0.0.5"],"expireTime":"2026-01-02T13:00:00Z","hostName":null,"renewTime":"2026-01-02T12:00:00Z"}}`},
	} {
		got, err := json.Marshal(patch(tc.lease))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want %s", got, err, tc.want)
		}
	}
}
