// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/neutronserver"
)

// A database of an older release would let Octavia end again and again.
func TestDatabaseWithoutOctavia(t *testing.T) {
	s := Spec{Name: "old"}
	d := neutronserver.Database{Dir: t.TempDir()}
	if err := s.checkOctavia(d); err == nil || !strings.Contains(err.Error(), "coelan sandbox down --name old") {
		t.Errorf("error %v does not say what to do", err)
	}
	if err := os.Mkdir(d.OctaviaFiles(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.checkOctavia(d); err != nil {
		t.Errorf("with Octavia's tables: %v", err)
	}
}

// Octavia and its load balancers have addresses of the cluster's primary family.
func TestOctaviaOfEachFamily(t *testing.T) {
	for family, want := range map[Family]struct {
		lines  []string
		subnet string
		more   object
	}{
		Dual: {
			[]string{"bind_host = 192.168.33.11\nbind_port = 9876\n", "endpoint = http://192.168.33.11:9696/\n"},
			"10.97.0.0/24", object{"ip_version": 4, "enable_dhcp": false},
		},
		IPv6: {
			[]string{"bind_host = fd00:192:168:33::11\nbind_port = 9876\n", "endpoint = http://[fd00:192:168:33::11]:9696/\n"},
			"fd00:10:97::/64", object{"ip_version": 6, "enable_dhcp": false},
		},
	} {
		s := Spec{Family: family}
		text := s.octavia().Configuration()
		for _, line := range want.lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s: %q is missing in\n%s", family, line, text)
			}
		}
		cidr, more := s.subnetOfBalancers()
		if diff := cmp.Diff(want.more, more); cidr.String() != want.subnet || diff != "" {
			t.Errorf("%s: subnet %s, want %s; %s", family, cidr, want.subnet, diff)
		}
	}
}
