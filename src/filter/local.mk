libunseen_a_SOURCES += \
	src/filter/filter.h \
	src/filter/probe.h
