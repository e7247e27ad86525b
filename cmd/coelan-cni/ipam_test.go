// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/wire"
)

// node is a directory of plugins, and an agent that asks for addresses as the real one does. Both
// write into one log what they are asked.
type node struct {
	t           *testing.T
	dir, socket string
	refuses     string // an error of the agent once it has addresses
}

func newNode(t *testing.T, plugin string) *node {
	n := &node{t: t, dir: t.TempDir(), socket: socketPath(t)}
	n.write("fake", "#!/bin/sh\necho \"plugin $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $(cat | tr -d '\\n')\" >>"+n.log()+"\n"+plugin)
	answerWith(t, n.socket, func(request []byte, conn net.Conn) {
		_, body, _ := strings.Cut(string(request), "\r\n\r\n")
		var r wire.Request
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Error(err)
		}
		n.note("agent " + r.Command + " " + string(r.Addresses))
		switch {
		case r.Command == "ADD" && r.ContainerID == "attached":
			reply(conn, "200 OK", `{"known":true}`)
		case r.Command == "ADD" && r.Addresses == nil && r.Delegates:
			reply(conn, "500 Internal Server Error", `{"code":104,"msg":"addresses"}`)
		case r.Command == "ADD" && n.refuses != "":
			reply(conn, "500 Internal Server Error", n.refuses)
		case r.Command == "ADD":
			reply(conn, "200 OK", `{"result":true}`)
		default:
			reply(conn, "200 OK", "")
		}
	})
	return n
}

func (n *node) write(name, text string) {
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) log() string { return filepath.Join(n.dir, "log") }

func (n *node) note(line string) {
	f, err := os.OpenFile(n.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, strings.TrimSpace(line))
		f.Close()
	}
	if err != nil {
		n.t.Error(err)
	}
}

func (n *node) config(ipamType string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","socket":%q,"timeout":5,"ipam":{"type":%q}}`, n.socket, ipamType)
}

func (n *node) run(command, ipamType string, env map[string]string) (code int, out string, log []string) {
	n.t.Helper()
	all := maps.Clone(addEnv)
	all["CNI_COMMAND"], all["CNI_PATH"] = command, "/nowhere:"+n.dir
	maps.Copy(all, env)
	code, out = runPlugin(n.t, all, n.config(ipamType))
	text, err := os.ReadFile(n.log())
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		log = append(log, strings.TrimSpace(strings.ReplaceAll(line, n.config(ipamType), "CONFIG")))
	}
	return code, out, log
}

const good = `[ $CNI_COMMAND != ADD ] || echo '{"ips":1}'`

// The agent is asked before the IPAM plugin, and addresses that it does not take are given back.
func TestIPAMPluginIsCalled(t *testing.T) {
	const add, del = "plugin ADD c1 eth0 CONFIG", "plugin DEL c1 eth0 CONFIG"
	const taken = `{"cniVersion":"1.1.0","code":103,"msg":"taken","details":"by another"}`
	for _, tt := range []struct {
		name, command, plugin, agent string
		code                         int
		out                          string
		log                          []string
	}{
		{"ADD", "ADD", good, "", 0, `{"result":true}`, []string{"agent ADD", add, `agent ADD {"ips":1}`}},
		{"DEL", "DEL", good, "", 0, "", []string{"agent DEL", del}},
		{"CHECK", "CHECK", good, "", 0, "", []string{"agent CHECK", "plugin CHECK c1 eth0 CONFIG"}},
		{"GC", "GC", good, "", 0, "", []string{"agent GC", "plugin GC c1 eth0 CONFIG"}},
		{"STATUS", "STATUS", good, "", 0, "", []string{"agent STATUS", "plugin STATUS c1 eth0 CONFIG"}},
		{"the agent refuses", "ADD", good, taken, 1, "taken", []string{"agent ADD", add, `agent ADD {"ips":1}`, del}},
		{"and they cannot be given back", "ADD", good + "\n[ $CNI_COMMAND != DEL ] || { echo '{\"code\":999,\"msg\":\"disk full\"}'; exit 1; }", taken, 1,
			"by another; giving the addresses back is left to DEL: DEL of the IPAM plugin fake: disk full",
			[]string{"agent ADD", add, `agent ADD {"ips":1}`, del}},
		{"it fails", "ADD", `echo '{"code":11,"msg":"no address is free","details":"in 10.0.0.0/24"}'; exit 1`, "", 1,
			`"code": 11,
    "msg": "ADD of the IPAM plugin fake: no address is free",
    "details": "in 10.0.0.0/24"`, []string{"agent ADD", add}},
		{"it fails without a word", "ADD", "exit 3", "", 1, "failed without saying why", []string{"agent ADD", add}},
		{"it prints something else", "ADD", "echo 10.0.0.5", "", 1, "printed what is not JSON", []string{"agent ADD", add, del}},
		{"it hangs", "ADD", "[ $CNI_COMMAND = DEL ] || exec sleep 60", "", 1, "did not answer in time", []string{"agent ADD", add, del}},
		{"DEL fails", "DEL", `echo '{"code":999,"msg":"busy"}'; exit 1`, "", 1, "DEL of the IPAM plugin fake: busy", []string{"agent DEL", del}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.plugin)
			n.refuses = tt.agent
			code, out, log := n.run(tt.command, "fake", nil)
			if code != tt.code || !strings.Contains(out, tt.out) {
				t.Errorf("exit code %d, want %d; output %s\nlacks %s", code, tt.code, out, tt.out)
			}
			if diff := cmp.Diff(tt.log, log); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// A second ADD of what is attached gets no second address.
func TestIPAMPluginIsNotCalledForWhatIsAttached(t *testing.T) {
	n := newNode(t, good)
	code, out, log := n.run("ADD", "fake", map[string]string{"CNI_CONTAINERID": "attached"})
	if code != 0 || out != `{"known":true}` || len(log) != 1 {
		t.Errorf("exit code %d, output %s, calls %q", code, out, log)
	}
}

func TestIPAMPluginThatIsNotThere(t *testing.T) {
	n := newNode(t, good)
	code, out, _ := n.run("ADD", "absent", nil)
	if code != 1 || !strings.Contains(out, "the IPAM plugin absent of the network configuration is not there") ||
		!strings.Contains(out, "CNI_PATH: /nowhere, "+n.dir) || !strings.Contains(out, `"code": 4`) {
		t.Errorf("exit code %d, output %s", code, out)
	}
}

// Under the name ipam-odl the agent is asked for addresses alone, with the settings in ipam: other
// keys are those of the plugin that calls it.
func TestAsIPAMPlugin(t *testing.T) {
	path := socketPath(t)
	var head string
	var got wire.Request
	answerWith(t, path, func(request []byte, conn net.Conn) {
		var body string
		head, body, _ = strings.Cut(string(request), "\r\n")
		_, body, _ = strings.Cut(body, "\r\n\r\n")
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Error(err)
		}
		reply(conn, "200 OK", `{"ips":[]}`)
	})
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"n","type":"bridge","socket":"/nowhere","timeout":0.001,"ipam":{"type":"ipam-odl","socket":%q}}`, path)
	var out strings.Builder
	code := run("ipam-odl", func(key string) string { return addEnv[key] }, strings.NewReader(conf), &out, io.Discard)
	if code != 0 || out.String() != `{"ips":[]}` || head != "POST /v1/ipam HTTP/1.0" {
		t.Errorf("exit code %d, output %s, request %s", code, out.String(), head)
	}
	if string(got.Config) != conf || got.ContainerID != "c1" || got.TimeoutMillis < 50000 {
		t.Errorf("request %+v", got)
	}
}

// What is no plugin's name is never run, although DEL takes every configuration.
func TestNoIPAMPlugin(t *testing.T) {
	for _, name := range []string{"", "ipam-odl", "dhcp", "coelan-cni", "odlcoe", "../fake", ".", ".."} {
		n := newNode(t, good)
		n.write("dhcp", "#!/bin/sh\nexit 1")
		n.write("coelan-cni", "#!/bin/sh\nexit 1")
		if code, out, log := n.run("DEL", name, nil); code != 0 || len(log) != 1 {
			t.Errorf("%q: exit code %d, output %s, calls %q", name, code, out, log)
		}
	}
}
