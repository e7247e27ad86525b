// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// dial connects to a unix socket. An agent that is being restarted has none for a moment:
// so long as wait lasts, dial watches the directory until the socket is there.
func dial(path string, wait time.Duration, deadline time.Time) (*os.File, error) {
	conn, err := connect(path, deadline)
	if err == nil || wait <= 0 || !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
		return conn, err
	}
	watch, watchErr := watchDir(filepath.Dir(path))
	if watchErr != nil {
		return nil, err
	}
	defer watch.Close()
	if err := watch.SetDeadline(earlier(time.Now().Add(wait), deadline)); err != nil {
		return nil, err
	}
	events := make([]byte, 4096)
	for {
		// The socket may have come before the watch began.
		if conn, err = connect(path, deadline); err == nil {
			return conn, nil
		}
		if _, watchErr := watch.Read(events); watchErr != nil {
			return nil, err
		}
	}
}

// connect is net.Dial without package net: initializing that takes longer than the rest of the
// plugin. The file's deadlines work.
func connect(path string, deadline time.Time) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Connecting waits while the agent's backlog is full.
	limit := syscall.NsecToTimeval(max(time.Until(deadline), time.Millisecond).Nanoseconds())
	if err = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit); err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// watchDir returns a file from which events can be read when a name appears in a
// directory.
func watchDir(dir string) (*os.File, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE|syscall.IN_MOVED_TO); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
