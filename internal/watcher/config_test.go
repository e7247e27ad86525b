// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of COE's watcher works as it is, and is found where that looked.
func TestConfigOfCOE(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(here)
	c, err := ReadConfig("")
	if err != nil || c.ODL.Host != "http://127.0.0.1:8181" || c.ODL.User != "admin" || c.Validate() != nil {
		t.Errorf("without a file: %+v, %v, %v", c, err, c.Validate())
	}
	if p, err := c.ODL.password(); err != nil || p != "admin" {
		t.Errorf("password %q, %v", p, err)
	}
	write(t, home, "kube:\n  config: /root/.kube/config\nodl:\n  host: http://192.0.2.1:8181\n  user: karaf\n  password: boots\n")
	if c, err = ReadConfig(""); err != nil || c.Kube.Config != "/root/.kube/config" || c.ODL.Host != "http://192.0.2.1:8181" || c.ODL.User != "karaf" || c.ODL.Password != "boots" {
		t.Errorf("of $HOME: %+v, %v", c, err)
	}
	write(t, here, "odl: {host: 'http://192.0.2.2'}\nreread: 5m\n")
	if c, err = ReadConfig(""); err != nil || c.ODL.Host != "http://192.0.2.2" || c.ODL.User != "admin" || c.Reread.Duration != 5*time.Minute {
		t.Errorf("of the working directory: %+v, %v", c, err)
	}
	secret := filepath.Join(home, "secret")
	if err := os.WriteFile(secret, []byte("p w \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := (ODL{PasswordFile: secret}).password(); err != nil || p != "p w " {
		t.Errorf("password of a file %q, %v", p, err)
	}
	if _, err := (ODL{PasswordFile: "/none"}).password(); err == nil || !strings.Contains(err.Error(), "odl.passwordFile") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestBadConfigs(t *testing.T) {
	for text, want := range map[string]string{
		"odl: {hots: x}":             `unknown field "hots"`,
		"odl: 7":                     "coe.yaml",
		"clusterID: seven":           `clusterID "seven": want a UUID`,
		"reread: 1ms":                "reread 1ms: want at least 1s",
		"workers: 0":                 "workers 0: want 1 to 256",
		"workers: 1000":              "workers 1000: want 1 to 256",
		"networkID: ''":              "networkID is empty",
		"metricsAccess: all":         `metricsAccess "all"`,
		"logLevel: loud":             `level string "loud"`,
		"reread: 1 fortnight":        "fortnight",
		"clusterID: {a: b}":          "clusterID",
		"odl: {host: a}\nodl: {}":    "odl",
		"kube: {config: [/a, /b]}\n": "config",
	} {
		c, err := ReadConfig(write(t, t.TempDir(), text))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if _, err := ReadConfig("/none/coe.yaml"); err == nil {
		t.Error("a file that is named and not there is no error")
	}
}
