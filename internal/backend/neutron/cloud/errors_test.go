// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/policystream/certs"
)

func TestClassify(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answer := func(code int, body string, header ...string) error {
		e := gophercloud.ErrUnexpectedResponseCode{Actual: code, Body: []byte(body), ResponseHeader: http.Header{}}
		for i := 0; i < len(header); i += 2 {
			e.ResponseHeader.Set(header[i], header[i+1])
		}
		return e
	}
	for _, tc := range []struct {
		name   string
		err    error
		refuse *refusal
		after  time.Duration
	}{
		{name: "no answer", err: errors.New("connection refused")},
		{name: "busy", err: answer(503, ""), after: 0},
		{name: "busy for seconds", err: answer(503, "", "Retry-After", "7"), after: 7 * time.Second},
		{name: "too many, until a time", err: answer(429, "", "Retry-After", "Fri, 02 Jan 2026 03:04:15 GMT"), after: 10 * time.Second},
		{name: "a time that is over", err: answer(429, "", "Retry-After", "Fri, 02 Jan 2026 03:04:00 GMT")},
		{name: "too long", err: answer(503, "", "Retry-After", "86400"), after: maxAfter},
		{name: "no time", err: answer(503, "", "Retry-After", "soon")},
		{name: "unknown user", err: answer(401, `{"error": {}}`)},
		{name: "gone", err: answer(404, `{"NeutronError": {"type": "PortNotFound", "message": "no port"}}`),
			refuse: &refusal{gone: true, reason: reasonRefused, text: "no port"}},
		{name: "not reachable", err: answer(404, `{"NeutronError": {"type": "ExternalGatewayForFloatingIPNotFound", "message": "no way"}}`),
			refuse: &refusal{reason: reasonRefused, text: "no way"}},
		{name: "conflict", err: answer(409, `{"NeutronError": {"type": "MacAddressInUse", "message": "in use"}}`),
			refuse: &refusal{reason: reasonRefused, text: "in use"}},
		{name: "quota", err: answer(409, `{"NeutronError": {"type": "OverQuota", "message": "too many"}}`),
			refuse: &refusal{reason: reasonQuota, text: "too many"}},
		{name: "forbidden", err: answer(403, "not you"),
			refuse: &refusal{reason: reasonRefused, text: "not you", forbidden: true}},
		{name: "failed inside", err: answer(500, "oops"), refuse: &refusal{reason: reasonFailed, text: "oops", uncertain: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := classify(tc.err, now)
			var refused *refusal
			var away *outage
			switch {
			case errors.As(err, &refused):
				if tc.refuse == nil || *refused != *tc.refuse {
					t.Errorf("%+v, want %+v", refused, tc.refuse)
				}
			case errors.As(err, &away):
				if tc.refuse != nil || away.after != tc.after {
					t.Errorf("%+v after %v, want %+v, %v", away, away.after, tc.refuse, tc.after)
				}
			}
		})
	}
}

func TestAccess(t *testing.T) {
	for _, tc := range []struct {
		name   string
		access Access
		want   string
	}{
		{"nothing", Access{}, "clouds.yaml is needed"},
		{"both", Access{CloudsFile: "f", Cloud: "c", Endpoint: "http://n"}, "not both"},
		{"no cloud", Access{CloudsFile: "f"}, "which cloud"},
		{"no project", Access{Endpoint: "http://n"}, "project is needed"},
		{"file", Access{CloudsFile: "f", Cloud: "c"}, ""},
		{"endpoint", Access{Endpoint: "http://n", Project: "p"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			says(t, tc.access.Validate(), tc.want)
		})
	}
}

// Keystone says where Neutron is, and which project the user is of; passwords and application
// credentials are of the file.
func TestKeystone(t *testing.T) {
	for name, auth := range map[string]string{
		"password":               byPassword,
		"application credential": `{auth_url: %s, application_credential_id: i, application_credential_secret: s}`,
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeystone(t, nil)
			url, file := k.URL, k.cloudsFile(t, auth)
			api, project, err := Access{CloudsFile: file, Cloud: "c"}.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if project != "p1" || api.ServiceURL("ports") != url+"/network/v2.0/ports" || api.TokenID != "token" {
				t.Errorf("project %s, ports at %s, token %s", project, api.ServiceURL("ports"), api.TokenID)
			}
			if method := strings.ReplaceAll(name, " ", "_"); !strings.Contains(k.asked, `"methods":["`+method+`"]`) {
				t.Errorf("keystone was asked %s", k.asked)
			}
			if _, _, err := (Access{CloudsFile: file, Cloud: "other"}).connect(t.Context()); err == nil {
				t.Error("a cloud that the file does not have is no error")
			}
		})
	}
}

// Which region's Neutron and Octavia are used is never left to the order of keystone's catalog.
func TestRegion(t *testing.T) {
	for _, tc := range []struct {
		name               string
		settings           string
		networks, balanced []string
		neutron, octavia   string // what is said; empty: it is used
	}{
		{name: "named", settings: "region_name: r", networks: []string{"r", "other"}, balanced: []string{"r", "other"}},
		{name: "none named, and there is one", networks: []string{"r"}, balanced: []string{"r"}},
		{name: "none named, and one has two endpoints", networks: []string{"r", "r"}, balanced: []string{"r"}},
		{
			name: "none named, and Neutron is in several", networks: []string{"r", "other"}, balanced: []string{"r"},
			neutron: "a Neutron in several, other, r: write region_name into the file",
			octavia: "a Neutron in several, other, r: write region_name into the file",
		},
		{
			name: "none named, and Octavia is in several", networks: []string{"r"}, balanced: []string{"r", "other"},
			octavia: "an Octavia in several, other, r: write region_name into the file",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKeystone(t, nil)
			k.networks, k.balanced, k.settings = tc.networks, tc.balanced, tc.settings
			a := Access{CloudsFile: k.cloudsFile(t, byPassword), Cloud: "c"}
			api, _, err := a.connect(t.Context())
			says(t, err, tc.neutron)
			if err == nil && api.ServiceURL("ports") != k.URL+"/network/v2.0/ports" {
				t.Errorf("ports are at %s", api.ServiceURL("ports"))
			}
			_, err = a.ConnectOctavia(t.Context(), "", "east")
			says(t, err, tc.octavia)
		})
	}
}

// says wants an error with a text; empty: none.
func says(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%v, want %q", err, text)
	}
}

// Keystone and Neutron are asked by TLS if the authority of the file has signed their certificate.
func TestTLS(t *testing.T) {
	other, _, err := certs.Renew(certs.Bundle{}, "other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		authority []byte
		want      string
	}{
		{name: "its authority"},
		{"another authority", other.Roots, "certificate signed by unknown authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := unstartedKeystone(t, neutronfake.Start(t))
			k.StartTLS()
			k.trusts(t, tc.authority)
			a := Access{CloudsFile: k.cloudsFile(t, byPassword), Cloud: "c"}
			api, _, err := a.connect(t.Context())
			says(t, err, tc.want)
			if err != nil {
				says(t, err, "keystone at "+k.URL)
				says(t, err, "its authority is to be the cacert of cloud c in "+a.CloudsFile)
				return
			}
			var answer struct{ Networks []any }
			says(t, send(t.Context(), api, http.MethodGet, "networks", nil, &answer), "")
		})
	}
}
